#pragma once
#include "datasets/augment.h"
#include "datasets/sample_set.h"

// Images held in memory.
namespace ssn {

/// Images with one label each, on the CPU.
struct ImageSet {
  Tensor images = {};  // u8 (n, h, w, c)
  Tensor labels = {};  // i32 (n), each in [0, classes)

  std::int64_t size() const { return images ? images.shape()[0] : 0; }
};

/// Batches of them: normalised, and augmented where they are for training.
class ImageSamples : public SampleSet {
 public:
  ImageSamples(ImageSet set, const Augmentation& augmentation, const Normalization& normalization);

  const ImageSet& set() const { return set_; }
  std::int64_t size() const override { return set_.size(); }
  Batch raw(std::span<const std::int32_t> samples, const Random& random, bool training) const override;
  const ImageTransform* transform(bool training) const override { return training ? &training_ : &plain_; }

 private:
  ImageSet set_;
  ImageTransform training_, plain_;
};

}  // namespace ssn
