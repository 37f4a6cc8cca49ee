#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datasets/augment.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace ssn {

/// Some samples: what a network reads, and what it should say. A set fills the fields it has.
struct Batch {
  Tensor images = {};     // f32 (n, h, w, c); u8 where there are:
  Tensor samples = {};    // i32 (n): numbers in the set, of images that a transform is still to change
  Tensor tokens = {};     // i32 (n, length)
  Tensor lengths = {};    // i32 (n): what lies behind in a row of tokens is padding
  Tensor predicted = {};  // i32 (m): the rows of (n · length), rising, whose token is to be predicted
  Tensor labels = {};     // i32: (n) classes, or (m) tokens

  std::int64_t global_size = 0;  // labels in all parts of the step
  std::int64_t first = 0;        // place of the first sample among those of the step
  std::int64_t epoch = 0, step = 0, part = 0;

  std::int64_t size() const { return labels.size(); }
};

/// Samples of which batches are made. Safe to use from several threads.
class SampleSet {
 public:
  virtual ~SampleSet() = default;
  virtual std::int64_t size() const = 0;
  /// The labels that a sample gives to a batch.
  virtual std::int64_t labels_of(std::int64_t /*sample*/) const { return 1; }
  /// These samples in this order; of none, tensors with n = 0. `training`: each is changed at random, as
  /// (random, sample) alone says, so it is the same whatever rank, part or thread makes it; else it is as it
  /// always is. Fills only the tensors.
  Batch make(std::span<const std::int32_t> samples, const Random& random, bool training) const;
  /// The same but for what transform() does, which a GPU may do: images are u8, with `samples`.
  virtual Batch raw(std::span<const std::int32_t> samples, const Random& random, bool training) const = 0;
  /// raw() of a set that has only the samples of `part`, where it matters: no other takes a damaged one's
  /// place.
  virtual Batch raw_within(std::span<const std::int32_t> /*part*/, std::span<const std::int32_t> samples,
                           const Random& random, bool training) const {
    return raw(samples, random, training);
  }
  /// None: raw() is all.
  virtual const ImageTransform* transform(bool /*training*/) const { return nullptr; }
  /// Samples that could not be read so far, and whose place others took; sorted.
  virtual std::vector<std::int32_t> replaced() const { return {}; }
};
/// Has the images of a batch that is raw() changed as `transform`, which is where they are, and (random,
/// sample) say.
void finish(Batch& batch, const ImageTransform& transform, const Random& random);

using Samples = std::shared_ptr<const SampleSet>;

/// Those samples of a set, in the order given; each is changed at random as it would be in the whole set.
Samples subset(Samples set, std::vector<std::int32_t> samples);

/// Two sets made of one: `share` of the samples, drawn by the seed, are held out. None held out: a null.
struct Split {
  Samples rest, held_out;
};
Split hold_out(const Samples& set, double share, std::uint64_t seed);

}  // namespace ssn
