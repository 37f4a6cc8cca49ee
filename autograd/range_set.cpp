#include "autograd/range_set.h"

#include <algorithm>

#include "runtime/error.h"

namespace ssn {

void RangeSet::add(FlatRange range) {
  if (range.size == 0) return;
  auto next = std::lower_bound(ranges_.begin(), ranges_.end(), range,
                               [](const FlatRange& a, const FlatRange& b) { return a.first < b.first; });
  check((next == ranges_.end() || range.end() <= next->first) &&
            (next == ranges_.begin() || std::prev(next)->end() <= range.first),
        "range_set", "elements [{}, {}) are added twice", range.first, range.end());
  if (next != ranges_.end() && range.end() == next->first) {
    range.size += next->size;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin() && std::prev(next)->end() == range.first) {
    std::prev(next)->size += range.size;
    return;
  }
  ranges_.insert(next, range);
}

std::vector<FlatRange> RangeSet::gaps(FlatRange within) const {
  std::vector<FlatRange> gaps;
  std::int64_t at = within.first;
  const auto up_to = [&](std::int64_t end) {
    if (at < end) gaps.push_back({at, end - at});
  };
  for (const FlatRange& r : ranges_) {
    up_to(std::min(r.first, within.end()));
    at = std::max(at, r.end());
  }
  up_to(within.end());
  return gaps;
}

}  // namespace ssn
