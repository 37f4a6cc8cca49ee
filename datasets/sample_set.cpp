#include "datasets/sample_set.h"

#include <algorithm>
#include <numeric>

namespace ssn {
namespace {

class Subset : public SampleSet {
 public:
  Subset(Samples set, std::vector<std::int32_t> samples)
      : set_(std::move(set)), samples_(std::move(samples)) {}
  std::int64_t size() const override { return std::ssize(samples_); }
  std::int64_t labels_of(std::int64_t sample) const override { return set_->labels_of(samples_[sample]); }
  Batch raw(std::span<const std::int32_t> samples, const Random& random, bool training) const override {
    return set_->raw_within(samples_, of_set(samples), random, training);
  }
  Batch raw_within(std::span<const std::int32_t> part, std::span<const std::int32_t> samples,
                   const Random& random, bool training) const override {
    return set_->raw_within(of_set(part), of_set(samples), random, training);
  }
  const ImageTransform* transform(bool training) const override { return set_->transform(training); }

 private:
  /// Their numbers in the whole set.
  std::vector<std::int32_t> of_set(std::span<const std::int32_t> samples) const {
    std::vector<std::int32_t> numbers;
    for (const std::int32_t sample : samples) numbers.push_back(samples_[sample]);
    return numbers;
  }

  Samples set_;
  std::vector<std::int32_t> samples_;
};

}  // namespace

Batch SampleSet::make(std::span<const std::int32_t> samples, const Random& random, bool training) const {
  Batch batch = raw(samples, random, training);
  if (batch.samples) finish(batch, *transform(training), random);
  return batch;
}

void finish(Batch& batch, const ImageTransform& transform, const Random& random) {
  batch.images = transform.apply(batch.images, batch.samples, random);
  batch.samples = {};
}

Samples subset(Samples set, std::vector<std::int32_t> samples) {
  return std::make_shared<Subset>(std::move(set), std::move(samples));
}

Split hold_out(const Samples& set, double share, std::uint64_t seed) {
  const auto count = static_cast<std::int64_t>(share * static_cast<double>(set->size()));
  if (count == 0) return {set, {}};
  std::vector<std::int32_t> order(static_cast<std::size_t>(set->size()));
  std::iota(order.begin(), order.end(), 0);
  const Random random(seed, "held out");
  for (std::int64_t i = set->size() - 1; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(random.below(i + 1, static_cast<std::uint64_t>(i)))]);
  }
  const auto part = [&](auto first, auto last) {
    std::vector<std::int32_t> samples(first, last);
    std::sort(samples.begin(), samples.end());
    return subset(set, std::move(samples));
  };
  return {part(order.begin() + count, order.end()), part(order.begin(), order.begin() + count)};
}

}  // namespace ssn
