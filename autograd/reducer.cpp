#include "autograd/reducer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/optimizer.h"
#include "runtime/trace.h"

namespace ssn {
namespace {

/// Of a sum, at most, so that it finds in the caches what was looked at just before.
constexpr std::int64_t kSumBytes = 4 << 20;

}  // namespace

void Reducer::look_at(FlatRange range) {
  const Tensor part = parameters_.gradients().slice(range.first, Shape{range.size});
  if (std::isfinite(norm(part))) return;
  const Tensor host = part.to(Device::cpu);
  const auto first_in = [&]<class T>(std::span<const T> x) {
    return std::ranges::find_if(x, [](T value) { return !std::isfinite(value); }) - x.begin();
  };
  const std::int64_t at = host.dtype() == DType::f32 ? first_in(std::span<const float>(host.span<float>()))
                                                     : first_in(std::span<const double>(host.span<double>()));
  const std::int64_t first = range.first + std::min(at, range.size - 1);
  not_finite_ = std::min(first, not_finite_.value_or(first));
}

void Reducer::start(FlatRange range) {
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
  if (!options_.overlap || !comm_.sums_beside(parameters_.device())) return std::numeric_limits<std::int64_t>::max();
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

std::optional<std::int64_t> Reducer::finish() {
  RangeSet left;
  for (const FlatRange& stretch : parameters_.stretches())
    for (const FlatRange& gap : started_.gaps(stretch)) left.add(gap);
  for (const FlatRange& range : left.ranges()) start(range);
  {
    const Span span("finish sum");
    if (!silent_) comm_.wait_all();
  }
  waiting_ = started_ = {};
  return std::exchange(not_finite_, std::nullopt);
}

}  // namespace ssn
