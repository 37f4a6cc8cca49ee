#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/bf16.h"
#include "runtime/hd.h"

namespace ssn {

/// Elements that are summed at a time: partial sums stay in the first cache.
template <class T>
inline constexpr std::int64_t kTreeBlock = 4096 / sizeof(Wider<T>);

namespace detail {

template <class T>
SSN_CLONES void widen_block(std::int64_t n, const T* x, Wider<T>* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
}
/// y may be a or b.
template <class T>
SSN_CLONES void add_block(std::int64_t n, const Wider<T>* a, const Wider<T>* b, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(y[i], a[i] + b[i]);
}

/// The sum is in `scratch`, or it is a row itself.
template <class T>
const Wider<T>* partial_sum(std::span<const T* const> rows, std::int64_t at, std::int64_t n,
                            Wider<T>* scratch) {
  if (rows.size() == 1) {
    if constexpr (std::is_same_v<T, Wider<T>>) return rows[0] + at;
    widen_block<T>(n, rows[0] + at, scratch);
    return scratch;
  }
  const std::size_t half = std::bit_ceil(rows.size()) / 2;
  const Wider<T>* left = partial_sum(rows.first(half), at, n, scratch);
  const Wider<T>* right = partial_sum(rows.subspan(half), at, n, scratch + kTreeBlock<T>);
  add_block<Wider<T>>(n, left, right, scratch);
  return scratch;
}

}  // namespace detail

/// y = the sum of elements [at, at + n) of the rows, two at least; n is at most kTreeBlock. They are added as
/// a binary tree: ((0 + 1) + (2 + 3)) + ... So the sum over 2ᵏ ranks is, bit by bit, the one over fewer ranks
/// that have summed the same parts of it themselves. y may be elements [at, at + n) of a row.
template <class T>
void add_as_tree(std::span<const T* const> rows, std::int64_t at, std::int64_t n, T* y) {
  constexpr std::size_t kLevels = 16;
  alignas(64) Wider<T> scratch[kLevels * kTreeBlock<T>];
  const std::size_t half = std::bit_ceil(rows.size()) / 2;
  const Wider<T>* left = detail::partial_sum(rows.first(half), at, n, scratch);
  const Wider<T>* right = detail::partial_sum(rows.subspan(half), at, n, scratch + kTreeBlock<T>);
  detail::add_block<T>(n, left, right, y);
}

}  // namespace ssn
