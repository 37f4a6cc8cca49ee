#include "autograd/reducer.h"

#include <algorithm>
#include <limits>

#include "kernels/optimizer.h"
#include "runtime/dispatch.h"
#include "runtime/trace.h"

namespace ssn {
namespace {

/// Of a sum, at most, so that it finds in the caches what was looked at just before.
constexpr std::int64_t kSumBytes = 4 << 20;

}  // namespace

void Reducer::look_at(FlatRange range) {
  const Tensor g = parameters_.gradients();
  dispatch(g.device(), g.dtype(), "look at gradient", [&]<class T>(auto& q) {
    kernels::find_not_finite(q, range.size, g.data<T>() + range.first, range.first,
                             not_finite_.data<std::int64_t>());
  });
}

void Reducer::start(FlatRange range) {
  if (started_.ranges().empty()) not_finite_.fill(static_cast<double>(parameters_.gradients().size()));
  started_.add(range);
  const std::int64_t most = kSumBytes / static_cast<std::int64_t>(size_of(parameters_.dtype()));
  for (FlatRange rest = range; rest.size > 0;) {
    const FlatRange part{rest.first, std::min(rest.size, most)};
    look_at(part);
    const Span span("start sum", comm_.payload(part.size, parameters_.dtype()));
    if (!silent_) comm_.start_sum(parameters_.gradients().slice(part.first, Shape{part.size}));
    rest = {part.end(), rest.size - part.size};
  }
}

std::int64_t Reducer::least_part() const {
  if (!options_.overlap || !comm_.sums_beside(parameters_.device()))
    return std::numeric_limits<std::int64_t>::max();
  return options_.bucket / static_cast<std::int64_t>(size_of(parameters_.dtype()));
}

void Reducer::complete(FlatRange range) {
  check(started_.gaps(range) == std::vector{range}, "reducer",
        "elements [{}, {}) are completed twice in a step", range.first, range.end());
  waiting_.add(range);
  std::int64_t elements = 0;
  for (const FlatRange& waiting : waiting_.ranges()) elements += waiting.size;
  if (!options_.overlap ||
      elements * static_cast<std::int64_t>(size_of(parameters_.dtype())) < options_.bucket)
    return;
  for (const FlatRange& waiting : waiting_.ranges()) start(waiting);
  waiting_ = {};
}

void Reducer::queue_rest() {
  RangeSet left;
  for (const FlatRange& stretch : parameters_.stretches())
    for (const FlatRange& gap : started_.gaps(stretch)) left.add(gap);
  for (const FlatRange& range : left.ranges()) start(range);
  if (!silent_) comm_.join_sums();
  waiting_ = started_ = {};
}

void Reducer::wait() {
  const Span span("finish sum");
  if (!silent_) comm_.wait_all();
}

std::optional<std::int64_t> Reducer::not_finite() const {
  const std::int64_t first = *not_finite_.to(Device::cpu).data<std::int64_t>();
  if (first >= parameters_.gradients().size()) return std::nullopt;
  return first;
}

}  // namespace ssn
