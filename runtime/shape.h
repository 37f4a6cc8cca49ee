#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "runtime/error.h"

namespace ssn {

/// The extents of a contiguous row-major tensor, outermost first; at most six, none negative. Shape{} is a
/// scalar.
class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    check(dims.size() <= kMaxRank, "shape", "at most {} dimensions are possible, found {}", kMaxRank,
          dims.size());
    for (int i = 0; i < rank_; ++i) {
      check(dims[i] >= 0, "shape", "dimension {} is {}; it must not be negative", i, dims[i]);
      dims_[i] = dims[i];
    }
  }
  int rank() const { return rank_; }
  /// Extent of dimension i; a negative i counts from the last.
  std::int64_t operator[](int i) const { return dims_[i < 0 ? i + rank_ : i]; }
  /// Number of elements.
  std::int64_t size() const {
    std::int64_t n = 1;
    for (std::int64_t d : *this) n *= d;
    return n;
  }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }
  bool operator==(const Shape& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }
  /// "64x3x3x3"; "scalar" for rank 0.
  std::string text() const {
    return rank_ == 0 ? "scalar" : fmt::format("{}", fmt::join(begin(), end(), "x"));
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace ssn
