#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "datasets/sample_set.h"

namespace ssn {

struct LoaderOptions {
  std::int64_t batch = 64;  // global: over all ranks and micro-batches
  std::uint64_t seed = 0;
  bool training = true;  // changed at random, in a new order each epoch, in full batches only (but at least
                         // one); otherwise as they are, in the set's order, every sample once
};

/// Cuts a set into batches. Which samples a batch has, their order and how they are changed depends on
/// (seed, epoch, step) alone; a rank or micro-batch takes its part of the global batch. Safe to use from
/// several threads.
class Loader {
 public:
  Loader(Samples set, const LoaderOptions& options);

  std::int64_t size() const { return set_->size(); }
  std::int64_t steps_per_epoch() const;
  /// Samples in the global batch of `step`.
  std::int64_t batch_size(std::int64_t step) const;
  /// The contiguous part `part` of `parts` of a global batch. Parts differ by one sample at most, and the
  /// first batch_size % parts have one more; parts put together are the batch of one part.
  Batch batch(std::int64_t epoch, std::int64_t step, std::int64_t part = 0, std::int64_t parts = 1) const;
  /// The same as SampleSet::raw() gives it: to be finished by transform(), where it is not null, and
  /// draws(epoch).
  Batch raw_batch(std::int64_t epoch, std::int64_t step, std::int64_t part = 0, std::int64_t parts = 1) const;
  const ImageTransform* transform() const { return set_->transform(options_.training); }
  Random draws(std::int64_t epoch) const {
    return {options_.seed, Random::hash("augment") + static_cast<std::uint64_t>(epoch)};
  }
  /// The order of the samples in `epoch`: Fisher and Yates' shuffle from the last position down, position i
  /// drawing `Random(seed, hash("order") + epoch).below(i + 1, i)`.
  std::shared_ptr<const std::vector<std::int32_t>> order(std::int64_t epoch) const;

 private:
  Samples set_;
  LoaderOptions options_;
  mutable std::mutex mutex_;  // guards the order made last
  mutable std::int64_t order_epoch_ = -1;
  mutable std::shared_ptr<const std::vector<std::int32_t>> order_;
};

struct PrefetchOptions {
  std::int64_t epoch = 0, step = 0;  // where to start
  std::int64_t first_part = 0;  // parts [first_part, first_part + part_count) of `parts` are given, one after
  std::int64_t part_count = 1;  // another: rank r of n with m micro-batches takes m from r m of n m
  std::int64_t parts = 1;
  std::optional<std::int64_t> end_epoch = {};  // stop before this epoch; none: go on for ever
  std::int64_t depth = 2;                      // batches prepared ahead
};

/// Batches in the order (epoch, step, part), prepared ahead by a thread of its own. The loader must outlive
/// it.
class Prefetcher {
 public:
  Prefetcher(const Loader& loader, PrefetchOptions options);
  /// The same for batches from elsewhere: `make(epoch, step, part)` is called on the thread.
  using Make = std::function<Batch(std::int64_t epoch, std::int64_t step, std::int64_t part)>;
  Prefetcher(Make make, std::int64_t steps_per_epoch, PrefetchOptions options);
  Prefetcher(const Prefetcher&) = delete;
  /// The next batch; none after the last. Throws what preparing it threw, also when called again.
  std::optional<Batch> next();
  /// Whether next() returns a batch without waiting.
  bool ready();

 private:
  void run(const std::stop_token& stop);
  bool push(const std::stop_token& stop, Batch batch);

  Make make_;
  std::int64_t steps_;
  PrefetchOptions options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;
  bool done_ = false;
  std::jthread thread_;  // the last member: it stops before the others go
};

}  // namespace ssn
