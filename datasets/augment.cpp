#include "datasets/augment.h"

#include <algorithm>
#include <cmath>

#include "runtime/hd.h"
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

SSN_CLONES void normalize(const std::uint8_t* x, const float* mean, const float* std, std::int64_t n,
                          float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = (static_cast<float>(x[i]) / 255.0f - mean[i]) / std[i];
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
    : height_(height), width_(width), channels_(channels), augmentation_(augmentation) {
  const bool plain = normalization.mean.empty() && normalization.std.empty();
  const auto count = static_cast<std::size_t>(channels);
  check(plain || (normalization.mean.size() == count && normalization.std.size() == count), "images",
        "images of {} channels cannot be normalised by {} means and {} deviations", channels,
        normalization.mean.size(), normalization.std.size());
  check(augmentation.crop_padding >= 0 && augmentation.cutout >= 0, "images",
        "crop padding ({}) and cutout ({}) must not be negative", augmentation.crop_padding,
        augmentation.cutout);
  for (std::int64_t k = 0; k < channels; ++k) {
    const float mean = plain ? 0.0f : normalization.mean[k], std = plain ? 1.0f : normalization.std[k];
    check(std::isfinite(mean) && std::isfinite(std) && std > 0, "images",
          "channel {} cannot be normalised by mean {} and deviation {}", k, mean, std);
  }
  for (std::int64_t i = 0; i < width * channels; ++i) {
    mean_.push_back(plain ? 0.0f : normalization.mean[i % channels]);
    std_.push_back(plain ? 1.0f : normalization.std[i % channels]);
  }
}

void ImageTransform::apply(const std::uint8_t* in, const Random& random, std::int64_t sample,
                           float* out) const {
  // Numbers kept for each sample: a draw does not depend on which others are made.
  constexpr std::int64_t kDraws = 8;
  enum Draw : std::int64_t { kFlip, kCropY, kCropX, kCutoutY, kCutoutX };
  const auto below = [&](std::int64_t n, Draw draw) {
    return random.below(n, static_cast<std::uint64_t>(sample * kDraws + draw));
  };
  const std::int64_t padding = augmentation_.crop_padding, side = augmentation_.cutout;
  const bool flip = augmentation_.flip && below(2, kFlip) == 1;
  const std::int64_t dy = padding > 0 ? below(2 * padding + 1, kCropY) - padding : 0;
  const std::int64_t dx = padding > 0 ? below(2 * padding + 1, kCropX) - padding : 0;
  const std::int64_t row_size = width_ * channels_;
  std::vector<std::uint8_t> row(row_size);
  for (std::int64_t y = 0; y < height_; ++y, out += row_size) {
    const bool inside = y + dy >= 0 && y + dy < height_;
    std::fill(row.begin(), row.end(), std::uint8_t{0});
    for (std::int64_t x = std::max<std::int64_t>(0, -dx); inside && x < std::min(width_, width_ - dx); ++x) {
      const std::int64_t from_x = flip ? width_ - 1 - x - dx : x + dx;
      const std::uint8_t* from = in + ((y + dy) * width_ + from_x) * channels_;
      for (std::int64_t k = 0; k < channels_; ++k) row[x * channels_ + k] = from[k];
    }
    normalize(row.data(), mean_.data(), std_.data(), row_size, out);
  }
  if (side == 0) return;
  out -= height_ * width_ * channels_;
  const std::int64_t top = below(height_, kCutoutY) - side / 2, left = below(width_, kCutoutX) - side / 2;
  const std::int64_t first = std::max<std::int64_t>(left, 0), last = std::min(left + side, width_);
  for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + side, height_); ++y)
    std::fill(out + (y * width_ + first) * channels_, out + (y * width_ + last) * channels_, 0.0f);
}

}  // namespace ssn
