#include "datasets/crop.h"

#include <algorithm>
#include <cmath>

#include "runtime/hd.h"

namespace ssn {
namespace {

constexpr int kBits = 14;  // of a weight's fraction
constexpr std::int32_t kOne = 1 << kBits;

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>((sum + kOne / 2) >> kBits);
}

/// to[i] = Σ_k weights[k] · rows[k · stride + i], rounded.
SSN_CLONES void combine_rows(const std::uint8_t* rows, std::int64_t stride, const std::int32_t* weights,
                             std::int64_t count, std::int64_t n, std::int32_t* sums, std::uint8_t* to) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] = weights[0] * rows[i];
  for (std::int64_t k = 1; k < count; ++k) {
    const std::uint8_t* row = rows + k * stride;
    const std::int32_t weight = weights[k];
    for (std::int64_t i = 0; i < n; ++i) sums[i] += weight * row[i];
  }
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_byte(sums[i]);
}

Rectangle centred(const ImageExtent& image, std::int64_t height, std::int64_t width) {
  return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

std::int64_t rounded(double value, std::int64_t most) {
  return std::clamp<std::int64_t>(std::llround(value), 1, most);
}

}  // namespace

Rectangle random_rectangle(const ImageExtent& image, const ImageExtent& to, double least_area,
                           const Random& random, std::uint64_t first) {
  constexpr int kAttempts = 10;
  constexpr double kAspect = 4.0 / 3.0;
  const double height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  const double shape = static_cast<double>(to.width) / static_cast<double>(to.height);
  for (int attempt = 0; attempt < kAttempts; ++attempt, first += 4) {
    const double area = height * width * (least_area + (1 - least_area) * random.uniform(first));
    const double aspect = shape * std::exp(std::log(kAspect) * (2 * random.uniform(first + 1) - 1));
    const auto h = std::llround(std::sqrt(area / aspect)), w = std::llround(std::sqrt(area * aspect));
    if (h < 1 || w < 1 || h > image.height || w > image.width) continue;
    return {random.below(image.height - h + 1, first + 2), random.below(image.width - w + 1, first + 3), h,
            w};
  }
  const double aspect = std::clamp(width / height, shape / kAspect, shape * kAspect);
  return centred(image, rounded(width / aspect, image.height), rounded(height * aspect, image.width));
}

Rectangle central_rectangle(const ImageExtent& image, const ImageExtent& to) {
  constexpr double kShare = 224.0 / 256.0;
  const double scale = kShare * std::min(static_cast<double>(image.height) / static_cast<double>(to.height),
                                         static_cast<double>(image.width) / static_cast<double>(to.width));
  return centred(image, rounded(scale * static_cast<double>(to.height), image.height),
                 rounded(scale * static_cast<double>(to.width), image.width));
}

/// For outputs evenly over [begin, begin + length) of inputs, of which [0, limit) exist.
void Resizer::Axis::plan(double begin, double length, std::int64_t limit, std::int64_t outputs) {
  taps.clear(), weights.clear();
  const auto lowest = static_cast<std::int64_t>(begin);
  const auto end = std::min(limit, static_cast<std::int64_t>(std::ceil(begin + length)));
  const double step = length / static_cast<double>(outputs), reach = std::max(1.0, step);
  for (std::int64_t i = 0; i < outputs; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * step;  // pixel j has its own at j + 0.5
    const std::int64_t first = std::clamp<std::int64_t>(std::llround(centre - reach), lowest, end - 1);
    const std::int64_t last = std::clamp<std::int64_t>(std::llround(centre + reach), first + 1, end);
    const auto height = [&](std::int64_t j) {
      return std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - centre) / reach);
    };
    double sum = 0;
    for (std::int64_t j = first; j < last; ++j) sum += height(j);
    taps.push_back({first, last - first, std::ssize(weights)});
    std::int32_t rest = kOne;  // they add up to exactly one
    for (std::int64_t j = first; j < last; ++j) {
      weights.push_back(sum > 0 ? static_cast<std::int32_t>(std::lround(height(j) / sum * kOne)) : 0);
      rest -= weights.back();
    }
    *std::max_element(weights.begin() + taps.back().weight, weights.end()) += rest;
  }
}

void Resizer::resize(const Decoded& from, const ImageExtent& to, std::uint8_t* out) {
  rows_.plan(from.top, from.height, from.rows, to.height);
  columns_.plan(from.left, from.width, from.columns, to.width);
  const std::int64_t first = columns_.taps.front().first;
  const std::int64_t width = 3 * (columns_.taps.back().first + columns_.taps.back().count - first);
  sums_.resize(width), line_.resize(width);
  for (const Taps& row : rows_.taps) {
    combine_rows(from.rgb.data() + 3 * (row.first * from.columns + first), 3 * from.columns,
                 rows_.weights.data() + row.weight, row.count, width, sums_.data(), line_.data());
    for (const Taps& column : columns_.taps) {
      const std::uint8_t* in = line_.data() + 3 * (column.first - first);
      const std::int32_t* weights = columns_.weights.data() + column.weight;
      std::int32_t red = 0, green = 0, blue = 0;
      for (std::int64_t k = 0; k < column.count; ++k, in += 3) {
        red += weights[k] * in[0], green += weights[k] * in[1], blue += weights[k] * in[2];
      }
      *out++ = to_byte(red), *out++ = to_byte(green), *out++ = to_byte(blue);
    }
  }
}

}  // namespace ssn
