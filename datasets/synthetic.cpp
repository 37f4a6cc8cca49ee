#include "datasets/synthetic.h"

#include <algorithm>

#include "runtime/parallel.h"
#include "runtime/random.h"

namespace ssn {
namespace {

/// A class's pattern, f32 (h, w, c) in 64..192: random values on a coarse grid, bilinear between.
std::vector<float> class_pattern(const ImageSize& size, std::int64_t label, std::uint64_t seed) {
  constexpr std::int64_t kGrid = 4;  // cells along each side
  constexpr std::int64_t kPoints = kGrid + 1;
  const Random random(seed, Random::hash("synthetic/pattern") + static_cast<std::uint64_t>(label));
  std::vector<float> pattern;
  pattern.reserve(size.height * size.width * size.channels);
  const auto value = [&](std::int64_t y, std::int64_t x, std::int64_t k) {
    const std::int64_t index = (std::min(y, kGrid) * kPoints + std::min(x, kGrid)) * size.channels + k;
    return 64 + 128 * random.uniform(static_cast<std::uint64_t>(index));
  };
  for (std::int64_t y = 0; y < size.height; ++y)
    for (std::int64_t x = 0; x < size.width; ++x) {
      const double v = static_cast<double>(y * kGrid) / static_cast<double>(size.height);
      const double u = static_cast<double>(x * kGrid) / static_cast<double>(size.width);
      const auto i = static_cast<std::int64_t>(v), j = static_cast<std::int64_t>(u);
      const double dy = v - static_cast<double>(i), dx = u - static_cast<double>(j);
      for (std::int64_t k = 0; k < size.channels; ++k) {
        const double above = (1 - dx) * value(i, j, k) + dx * value(i, j + 1, k);
        const double below = (1 - dx) * value(i + 1, j, k) + dx * value(i + 1, j + 1, k);
        pattern.push_back(static_cast<float>((1 - dy) * above + dy * below));
      }
    }
  return pattern;
}

/// Noise of mean 0 and standard deviation 37: four bytes of a draw, whose sum is nearly normal.
float noise(std::uint32_t bits) {
  const std::uint32_t sum = (bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) + (bits >> 24);
  return (static_cast<float>(sum) - 510.0f) / 4;
}

}  // namespace

ImageSet synthetic_images(const InputShape& shape, std::int64_t count, std::uint64_t seed,
                          std::uint64_t stream) {
  const auto [c, h, w] = shape.size;
  const std::int64_t pixels = h * w * c;
  std::vector<std::vector<float>> patterns(shape.classes);
  for (std::int64_t label = 0; label < shape.classes; ++label)
    patterns[label] = class_pattern(shape.size, label, seed);
  const ImageSet set{.images = Tensor::empty({count, h, w, c}, DType::u8),
                     .labels = Tensor::empty({count}, DType::i32)};
  auto* images = set.images.data<std::uint8_t>();
  auto* labels = set.labels.data<std::int32_t>();
  const std::uint64_t noise_stream = Random::hash("synthetic/noise") + stream;
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      labels[n] = static_cast<std::int32_t>(n % shape.classes);
      const std::vector<float>& pattern = patterns[n % shape.classes];
      PhiloxDraw draw{};
      for (std::int64_t i = 0; i < pixels; ++i) {
        const std::int64_t index = n * pixels + i;
        if (i == 0 || index % 4 == 0)
          draw = philox(seed, noise_stream, static_cast<std::uint64_t>(index / 4));
        const float value = std::clamp(pattern[i] + noise(draw.v[index % 4]), 0.0f, 255.0f);
        images[index] = static_cast<std::uint8_t>(value + 0.5f);
      }
    }
  });
  return set;
}

}  // namespace ssn
