#include "datasets/augment.h"

#include <algorithm>
#include <cmath>

#include "kernels/augment.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {

constexpr std::int64_t kValues = 256;  // of a byte

void check_images(const Tensor& images) {
  check(images && images.dtype() == DType::u8 && images.shape().rank() == 4 && images.size() > 0, "images",
        "expected u8 images (n, h, w, c), found {}", images ? images.shape().text() : "nothing");
}

/// Where an output position reads: two neighbours and the weight of the second. Half-pixel centres, borders
/// repeated.
struct Tap {
  std::int64_t first, second;
  float weight;
};
std::vector<Tap> bilinear_taps(std::int64_t from, std::int64_t to) {
  std::vector<Tap> taps(to);
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (std::int64_t i = 0; i < to; ++i) {
    const double at =
        std::clamp((static_cast<double>(i) + 0.5) * scale - 0.5, 0.0, static_cast<double>(from - 1));
    const auto first = static_cast<std::int64_t>(at);
    taps[i] = {first, std::min(first + 1, from - 1), static_cast<float>(at - static_cast<double>(first))};
  }
  return taps;
}

/// Averages blocks of (h / height) x (w / width) pixels of one image, halves rounded up.
void average_image(const std::uint8_t* in, const Shape& from, const Shape& to, std::uint8_t* out) {
  const std::int64_t w = from[2], c = from[3], height = to[1], width = to[2];
  const std::int64_t rows = from[1] / height, columns = w / width, count = rows * columns;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t k = 0; k < c; ++k) {
        std::int64_t sum = 0;
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j)
            sum += in[((y * rows + i) * w + x * columns + j) * c + k];
        out[(y * width + x) * c + k] = static_cast<std::uint8_t>((sum + count / 2) / count);
      }
}

void interpolate_image(const std::uint8_t* in, std::int64_t w, std::int64_t c, const std::vector<Tap>& rows,
                       const std::vector<Tap>& columns, std::uint8_t* out) {
  for (const Tap& row : rows)
    for (const Tap& column : columns)
      for (std::int64_t k = 0; k < c; ++k) {
        const auto along = [&](std::int64_t y) {
          const float left = in[(y * w + column.first) * c + k], right = in[(y * w + column.second) * c + k];
          return left + column.weight * (right - left);
        };
        const float above = along(row.first), below = along(row.second);
        *out++ = static_cast<std::uint8_t>(above + row.weight * (below - above) + 0.5f);
      }
}

}  // namespace

void ValueCounts::add(const Tensor& images) {
  check_images(images);
  const std::int64_t c = images.shape()[3], pixels = images.size() / c;
  counts_.resize(c);
  const auto* value = images.data<std::uint8_t>();
  for (std::int64_t p = 0; p < pixels; ++p)
    for (std::int64_t k = 0; k < c; ++k) ++counts_[k][*value++];
}

Normalization ValueCounts::normalization() const {
  Normalization result;
  for (const auto& count : counts_) {
    double pixels = 0, sum = 0, squares = 0;
    for (std::int64_t v = 0; v < kValues; ++v) {
      pixels += static_cast<double>(count[v]);
      sum += static_cast<double>(v * count[v]);
    }
    const double mean = sum / pixels;
    for (std::int64_t v = 0; v < kValues; ++v)
      squares +=
          static_cast<double>(count[v]) * (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
    const double std = std::sqrt(squares / pixels);
    result.mean.push_back(static_cast<float>(mean / 255));
    result.std.push_back(std > 0 ? static_cast<float>(std / 255) : 1.0f);
  }
  return result;
}

Normalization normalization_of(const Tensor& images) {
  ValueCounts counts;
  counts.add(images);
  return counts.normalization();
}

Tensor resize_images(const Tensor& images, std::int64_t height, std::int64_t width) {
  check_images(images);
  check(height > 0 && width > 0, "resize_images", "expected a positive size, found {}x{}", height, width);
  const Shape from = images.shape(), to{from[0], height, width, from[3]};
  if (from == to) return images;
  const bool average = from[1] % height == 0 && from[2] % width == 0;
  const std::vector<Tap> rows = bilinear_taps(from[1], height), columns = bilinear_taps(from[2], width);
  const Tensor result = Tensor::empty(to, DType::u8);
  const std::int64_t c = from[3], in_size = from[1] * from[2] * c, out_size = height * width * c;
  parallel_for(from[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::uint8_t* in = images.data<std::uint8_t>() + n * in_size;
      std::uint8_t* out = result.data<std::uint8_t>() + n * out_size;
      if (average)
        average_image(in, from, to, out);
      else
        interpolate_image(in, from[2], c, rows, columns, out);
    }
  });
  return result;
}

Tensor convert_channels(const Tensor& images, std::int64_t channels) {
  check_images(images);
  const Shape from = images.shape();
  const std::int64_t c = from[3], pixels = images.size() / c;
  if (c == channels) return images;
  check(channels > 0 && (c == 1 || channels == 1), "convert_channels",
        "images of {} channels cannot be turned into {}", c, channels);
  const Tensor result = Tensor::empty({from[0], from[1], from[2], channels}, DType::u8);
  const auto* in = images.data<std::uint8_t>();
  auto* out = result.data<std::uint8_t>();
  for (std::int64_t p = 0; p < pixels; ++p, in += c) {
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < c; ++k) sum += in[k];
    out = std::fill_n(out, channels, static_cast<std::uint8_t>((sum + c / 2) / c));
  }
  return result;
}

ImageTransform::ImageTransform(std::int64_t height, std::int64_t width, std::int64_t channels,
                               Augmentation augmentation, const Normalization& normalization)
    : height_(height),
      width_(width),
      channels_(channels),
      augmentation_(augmentation),
      mean_(Tensor::empty({width, channels}, DType::f32)),
      std_(Tensor::empty({width, channels}, DType::f32)) {
  const bool plain = normalization.mean.empty() && normalization.std.empty();
  const auto count = static_cast<std::size_t>(channels);
  check(plain || (normalization.mean.size() == count && normalization.std.size() == count), "images",
        "images of {} channels cannot be normalised by {} means and {} deviations", channels,
        normalization.mean.size(), normalization.std.size());
  check(augmentation.crop_padding >= 0 && augmentation.cutout >= 0, "images",
        "crop padding ({}) and cutout ({}) must not be negative", augmentation.crop_padding,
        augmentation.cutout);
  constexpr std::int64_t kMostValues = 1 << 30;
  check(height * width * channels <= kMostValues, "images", "{}x{}x{} are more than 2^30 values", height,
        width, channels);
  for (std::int64_t k = 0; k < channels; ++k) {
    const float mean = plain ? 0.0f : normalization.mean[k], std = plain ? 1.0f : normalization.std[k];
    check(std::isfinite(mean) && std::isfinite(std) && std > 0, "images",
          "channel {} cannot be normalised by mean {} and deviation {}", k, mean, std);
  }
  for (std::int64_t i = 0; i < width * channels; ++i) {
    mean_.data<float>()[i] = plain ? 0.0f : normalization.mean[i % channels];
    std_.data<float>()[i] = plain ? 1.0f : normalization.std[i % channels];
  }
}

ImageTransform ImageTransform::to(Device device) const {
  ImageTransform there = *this;
  there.mean_ = mean_.to(device), there.std_ = std_.to(device);
  return there;
}

Tensor ImageTransform::apply(const Tensor& images, const Tensor& samples, const Random& random) const {
  const std::int64_t n = samples.size();
  const Device device = mean_.device();
  check(images.shape() == Shape{n, height_, width_, channels_} && images.device() == device &&
            samples.device() == device,
        "augment", "expected {} images {}x{}x{} on {}, found {} on {}", n, height_, width_, channels_,
        name_of(device), images.shape().text(), name_of(images.device()));
  const Tensor result = Tensor::empty(images.shape(), DType::f32, device);
  const Augmentation& a = augmentation_;
  const kernels::AugmentRule rule{.h = height_,
                                  .w = width_,
                                  .c = channels_,
                                  .flip = a.flip,
                                  .padding = a.crop_padding,
                                  .cutout = a.cutout,
                                  .random = random};
  const Span span("augment");
  on_queue(device, "augment", [&](auto& queue) {
    kernels::augment(queue, n, rule, images.data<std::uint8_t>(), samples.data<std::int32_t>(),
                     mean_.data<float>(), std_.data<float>(), result.data<float>());
  });
  return result;
}

}  // namespace ssn
