#include "autograd/reducer.h"

#include <limits>

#include "runtime/trace.h"

namespace ssn {

void Reducer::start(FlatRange range) {
  const Span span("start sum", comm_.payload(range.size, parameters_.dtype()));
  if (!silent_) comm_.start_sum(parameters_.gradients().slice(range.first, Shape{range.size}));
  started_.add(range);
}

std::int64_t Reducer::least_part() const {
  if (!options_.overlap || !comm_.sums_beside()) return std::numeric_limits<std::int64_t>::max();
  return options_.bucket / static_cast<std::int64_t>(size_of(parameters_.dtype()));
}

void Reducer::complete(FlatRange range) {
  check(started_.gaps(range) == std::vector{range}, "reducer",
        "elements [{}, {}) are completed twice in a step", range.first, range.end());
  const FlatRange bucket = waiting_.add(range);
  const std::int64_t bytes = bucket.size * static_cast<std::int64_t>(size_of(parameters_.dtype()));
  if (!options_.overlap || bytes < options_.bucket) return;
  waiting_.remove(bucket);
  start(bucket);
}

void Reducer::finish() {
  const Span span("finish sum");
  RangeSet left;
  for (const FlatRange& stretch : parameters_.stretches())
    for (const FlatRange& gap : started_.gaps(stretch)) left.add(gap);
  for (const FlatRange& range : left.ranges()) start(range);
  if (!silent_) comm_.wait_all();
  waiting_ = started_ = {};
}

}  // namespace ssn
