#include "datasets/image_set.h"

#include <algorithm>

namespace ssn {
namespace {

ImageSet checked(ImageSet set) {
  const auto bad = [&] { return set.images.dtype() != DType::u8 || set.images.shape().rank() != 4; };
  check(set.images && set.labels && !bad() && set.images.size() > 0, "image set",
        "expected u8 images (n, h, w, c), and one at least");
  check(set.labels.dtype() == DType::i32 && set.labels.shape() == Shape{set.size()}, "image set",
        "expected {} labels of i32, found shape {} of {}", set.size(), set.labels.shape().text(),
        name_of(set.labels.dtype()));
  return set;
}

ImageTransform transform_of(const ImageSet& set, const Augmentation& augmentation,
                            const Normalization& normalization) {
  const Shape& s = set.images.shape();
  return {s[1], s[2], s[3], augmentation, normalization};
}

}  // namespace

ImageSamples::ImageSamples(ImageSet set, const Augmentation& augmentation, const Normalization& normalization)
    : set_(checked(std::move(set))),
      training_(transform_of(set_, augmentation, normalization)),
      plain_(transform_of(set_, {}, normalization)) {}

Batch ImageSamples::raw(std::span<const std::int32_t> samples, const Random&, bool) const {
  const Shape& s = set_.images.shape();
  const std::int64_t n = std::ssize(samples), pixels = s[1] * s[2] * s[3];
  Batch batch{.images = Tensor::empty({n, s[1], s[2], s[3]}, DType::u8),
              .samples = Tensor::of<std::int32_t>({n}, samples),
              .labels = Tensor::empty({n}, DType::i32)};
  const auto* images = set_.images.data<std::uint8_t>();
  const auto* labels = set_.labels.data<std::int32_t>();
  auto* out = batch.images.data<std::uint8_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    batch.labels.data<std::int32_t>()[i] = labels[samples[i]];
    std::copy_n(images + samples[i] * pixels, pixels, out + i * pixels);
  }
  return batch;
}

}  // namespace ssn
