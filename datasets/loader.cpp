#include "datasets/loader.h"

#include <algorithm>
#include <numeric>

#include "runtime/parallel.h"
#include "runtime/trace.h"

namespace ssn {

Loader::Loader(Samples set, const LoaderOptions& options) : set_(std::move(set)), options_(options) {
  check(set_ && size() > 0, "loader", "needs a set of one sample at least");
  check(size() <= INT32_MAX, "loader", "the set has {} samples; at most 2^31 - 1 are possible", size());
  check_usage(options_.batch > 0, "loader", "the batch must have one sample at least, found {}",
              options_.batch);
}

std::int64_t Loader::steps_per_epoch() const {
  const std::int64_t full = size() / options_.batch;
  const bool rest = size() % options_.batch != 0 && (!options_.training || full == 0);
  return full + (rest ? 1 : 0);
}

std::int64_t Loader::batch_size(std::int64_t step) const {
  check(step >= 0 && step < steps_per_epoch(), "loader", "step {} is out of range; an epoch has {}", step,
        steps_per_epoch());
  return std::min(options_.batch, size() - step * options_.batch);
}

Batch Loader::batch(std::int64_t epoch, std::int64_t step, std::int64_t part, std::int64_t parts) const {
  Batch batch = raw_batch(epoch, step, part, parts);
  if (batch.samples) finish(batch, *transform(), draws(epoch));
  return batch;
}

Batch Loader::raw_batch(std::int64_t epoch, std::int64_t step, std::int64_t part, std::int64_t parts) const {
  const std::int64_t all = batch_size(step);
  check(epoch >= 0 && part >= 0 && part < parts, "loader", "there is no epoch {}, part {} of {}", epoch, part,
        parts);
  const std::int64_t least = all / parts, more = all % parts;
  const std::int64_t n = least + (part < more ? 1 : 0), first = part * least + std::min(part, more);
  const auto samples = order(epoch);
  const std::span<const std::int32_t> step_samples(samples->data() + step * options_.batch,
                                                   static_cast<std::size_t>(all));
  Batch result = set_->raw(step_samples.subspan(first, n), draws(epoch), options_.training);
  for (const std::int32_t sample : step_samples) result.global_size += set_->labels_of(sample);
  result.first = first;
  result.epoch = epoch, result.step = step, result.part = part;
  return result;
}

std::shared_ptr<const std::vector<std::int32_t>> Loader::order(std::int64_t epoch) const {
  const std::scoped_lock lock(mutex_);
  if (order_ && (order_epoch_ == epoch || !options_.training)) return order_;
  auto order = std::make_shared<std::vector<std::int32_t>>(size());
  std::iota(order->begin(), order->end(), 0);
  const Random random(options_.seed, Random::hash("order") + static_cast<std::uint64_t>(epoch));
  for (std::int64_t i = size() - 1; options_.training && i > 0; --i)
    std::swap((*order)[i], (*order)[random.below(i + 1, static_cast<std::uint64_t>(i))]);
  order_ = order, order_epoch_ = epoch;
  return order_;
}

Prefetcher::Prefetcher(const Loader& loader, PrefetchOptions options)
    : Prefetcher(
          [&loader, parts = options.parts](std::int64_t epoch, std::int64_t step, std::int64_t part) {
            return loader.batch(epoch, step, part, parts);
          },
          loader.steps_per_epoch(), options) {}

Prefetcher::Prefetcher(Make make, std::int64_t steps_per_epoch, PrefetchOptions options)
    : make_(std::move(make)), steps_(steps_per_epoch), options_(options) {
  const PrefetchOptions& o = options_;
  check(o.parts > 0 && o.first_part >= 0 && o.part_count > 0 && o.first_part + o.part_count <= o.parts,
        "loader", "there are no parts {} to {} of {}", o.first_part, o.first_part + o.part_count - 1,
        o.parts);
  check(steps_ > 0 && o.epoch >= 0 && o.step >= 0 && o.step <= steps_, "loader",
        "cannot start at epoch {}, step {}; an epoch has {} steps", o.epoch, o.step, steps_);
  check(o.depth > 0, "loader", "the depth must be positive, found {}", o.depth);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Prefetcher::run(const std::stop_token& stop) {
  name_thread("batches");
  set_num_threads(1);  // the others are those that compute
  std::exception_ptr error;
  try {
    std::int64_t step = options_.step;
    for (std::int64_t epoch = options_.epoch; !options_.end_epoch || epoch < *options_.end_epoch;
         ++epoch, step = 0)
      for (; step < steps_; ++step)
        for (std::int64_t i = 0; i < options_.part_count; ++i)
          if (!push(stop, make_(epoch, step, options_.first_part + i))) return;
  } catch (...) {
    error = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  error_ = error, done_ = true;
  changed_.notify_all();
}

/// Waits for room; false if asked to stop.
bool Prefetcher::push(const std::stop_token& stop, Batch batch) {
  std::unique_lock lock(mutex_);
  const auto room = [&] { return static_cast<std::int64_t>(ready_.size()) < options_.depth; };
  if (!changed_.wait(lock, stop, room)) return false;
  ready_.push_back(std::move(batch));
  changed_.notify_all();
  return true;
}

bool Prefetcher::ready() {
  const std::scoped_lock lock(mutex_);
  return !ready_.empty();
}

std::optional<Batch> Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || done_; });
  if (ready_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return {};
  }
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

}  // namespace ssn
