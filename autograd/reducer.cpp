#include "autograd/reducer.h"

#include <algorithm>

#include "runtime/trace.h"

namespace ssn {

/// Whether stretch `index` begins where the one before it ends: between others lies a gap, which is not sent.
bool Reducer::adjacent(std::size_t index) const {
  const std::vector<FlatRange>& all = parameters_.stretches();
  return index > 0 && index < all.size() && all[index - 1].first + all[index - 1].size == all[index].first;
}

/// The complete stretches, not yet started, on both sides of `index`.
Reducer::Bucket Reducer::bucket_around(std::size_t index) const {
  Bucket bucket{index, index + 1};
  while (adjacent(bucket.first) && states_[bucket.first - 1] == State::complete) --bucket.first;
  while (adjacent(bucket.end) && states_[bucket.end] == State::complete) ++bucket.end;
  return bucket;
}

FlatRange Reducer::range(Bucket bucket) const {
  const FlatRange first = parameters_.stretches()[bucket.first],
                  last = parameters_.stretches()[bucket.end - 1];
  return {first.first, last.first + last.size - first.first};
}

void Reducer::start(Bucket bucket) {
  std::fill(states_.begin() + static_cast<std::ptrdiff_t>(bucket.first),
            states_.begin() + static_cast<std::ptrdiff_t>(bucket.end), State::started);
  const auto [first, size] = range(bucket);
  const Span span("start sum", comm_.payload(size, parameters_.dtype()));
  comm_.start_sum(parameters_.gradients().slice(first, Shape{size}));
}

void Reducer::complete(int group) {
  const auto index = static_cast<std::size_t>(group);
  states_.resize(parameters_.stretches().size());
  check(states_[index] == State::incomplete, "reducer", "group {} is completed twice in a step", group);
  states_[index] = State::complete;
  const Bucket bucket = bucket_around(index);
  const auto bytes = static_cast<std::size_t>(range(bucket).size) * size_of(parameters_.dtype());
  if (options_.overlap && static_cast<std::int64_t>(bytes) >= options_.bucket) start(bucket);
}

void Reducer::finish() {
  const Span span("finish sum");
  states_.resize(parameters_.stretches().size());
  std::replace(states_.begin(), states_.end(), State::incomplete, State::complete);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i] == State::complete) start(bucket_around(i));
  }
  comm_.wait_all();
  states_.clear();
}

}  // namespace ssn
