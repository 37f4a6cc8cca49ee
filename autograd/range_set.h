#pragma once
#include <cstdint>
#include <vector>

namespace ssn {

/// A half-open range [first, first + size) of the flat buffers, in elements.
struct FlatRange {
  std::int64_t first = 0, size = 0;

  std::int64_t end() const { return first + size; }
  bool operator==(const FlatRange&) const = default;
};

/// Elements of the flat buffers, as the fewest ranges.
class RangeSet {
 public:
  /// Adds a range, none of which is in the set yet (else an Error), joined with those that it touches.
  void add(FlatRange range);
  /// What of `within` is not in the set, in order.
  std::vector<FlatRange> gaps(FlatRange within) const;
  /// In order; none is empty or touches another.
  const std::vector<FlatRange>& ranges() const { return ranges_; }

 private:
  std::vector<FlatRange> ranges_;
};

}  // namespace ssn
