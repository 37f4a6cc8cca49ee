#pragma once
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "datasets/augment.h"
#include "datasets/crop.h"
#include "datasets/dataset.h"

// Sets of image files that are decoded when they are used.
namespace ssn {

/// Where the files are. Safe to use from several threads.
class EncodedImages {
 public:
  virtual ~EncodedImages() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int32_t label(std::int64_t image) const = 0;
  /// The file's own name, and where it is: for errors.
  virtual std::string name(std::int64_t image) const = 0;
  virtual std::string place(std::int64_t image) const = 0;
  /// The file's contents; BadImage if they are known to be damaged.
  virtual void read(std::int64_t image, std::vector<std::uint8_t>& to) const = 0;
};

/// The two sets, and the names of their classes, sorted; a label is a place among them.
struct EncodedSets {
  std::shared_ptr<const EncodedImages> train, test;
  std::vector<std::string> classes;
};

/// Those that a specification such as folder:DIR names; of other kinds of sets a UsageError.
EncodedSets open_encoded_sets(std::string_view spec);

/// Batches of them. Training: a random rectangle (`augmentation.crop_area`) of the image, resized, mirrored;
/// otherwise its centre. A bad image is an error that names it; with `skip_bad` the next good one of the set
/// (or of the part that is asked for) takes its place, label and all.
class EncodedSamples : public SampleSet {
 public:
  struct Options {
    ImageSize size = {};  // of 1 or 3 channels
    Augmentation augmentation = {};
    Normalization normalization = {};
    std::int64_t threads = 1;  // that decode a batch
    bool skip_bad = false;
  };
  EncodedSamples(std::shared_ptr<const EncodedImages> images, Options options);

  std::int64_t size() const override { return images_->size(); }
  Batch raw(std::span<const std::int32_t> samples, const Random& random, bool training) const override {
    return raw_within({}, samples, random, training);  // of all
  }
  Batch raw_within(std::span<const std::int32_t> part, std::span<const std::int32_t> samples,
                   const Random& random, bool training) const override;
  const ImageTransform* transform(bool training) const override { return training ? &training_ : &plain_; }
  std::vector<std::int32_t> replaced() const override;

  /// Of at most 1,000 images, evenly over the set, as they are tested.
  Normalization estimate_normalization() const;

 private:
  class Worker;
  template <class Use>
  void for_each(std::int64_t n, std::span<const std::int32_t> part, Use&& use) const;

  std::shared_ptr<const EncodedImages> images_;
  Options options_;
  ImageTransform training_, plain_;
  mutable std::mutex mutex_;  // guards:
  mutable std::set<std::int32_t> replaced_;
};

/// `name`: of the kind of set. Normalised by the estimate from the training set.
Dataset encoded_dataset(const std::string& name, const EncodedSets& sets, const DatasetOptions& options);

}  // namespace ssn
