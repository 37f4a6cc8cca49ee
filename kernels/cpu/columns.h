#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/reduce.h"
#include "runtime/parallel.h"

// Loops over (rows, cols) matrices that treat every column alike, with one value a column at hand.
namespace ssn::kernels {

/// Columns that are worked on together, in wide steps whatever their number: a matrix of few columns is taken
/// for one of `fold` times as many, in which each column appears `fold` times.
struct Columns {
  static constexpr int kWidth =
      512;             // most elements in a step, so that values a column fit arrays on the stack
  std::int64_t first;  // column
  int count;
  int fold;             // 1 unless `count` is all columns
  std::int64_t stride;  // between steps

  int width() const { return count * fold; }

  /// to[i] = from(column of element i of a step)
  template <class T, class F>
  void spread(F&& from, T* to) const {
    for (int c = 0; c < count; ++c) to[c] = from(first + c);
    for (int i = count; i < width(); ++i) to[i] = to[i - count];
  }
  /// to[c] = sum of the elements of wide that belong to column first + c
  template <class T, class U>
  void gather(const T* wide, U* to) const {
    for (int c = 0; c < count; ++c) {
      U sum = wide[c];
      for (int f = 1; f < fold; ++f) sum += wide[f * count + c];
      to[c] = sum;
    }
  }
  /// Calls f(integral_constant R, at, width) for all elements of rows [begin, end): the R spans of `width`
  /// elements that start at `at`, at + stride, ... R is 4 or 1.
  template <class F>
  void steps(std::int64_t begin, std::int64_t end, F&& f) const {
    const std::int64_t rows = end - begin;
    std::int64_t at = first + begin * (stride / fold), left = rows / fold;
    for (; left >= 4; left -= 4, at += 4 * stride) f(std::integral_constant<int, 4>{}, at, width());
    for (; left > 0; --left, at += stride) f(std::integral_constant<int, 1>{}, at, width());
    if (rows % fold) f(std::integral_constant<int, 1>{}, at, static_cast<int>(rows % fold) * count);
  }
};

/// f(Columns) over parts of all columns.
template <class F>
void for_columns(std::int64_t cols, F&& f) {
  const int fold = static_cast<int>(
      std::clamp<std::int64_t>(Columns::kWidth / 2 / std::max<std::int64_t>(cols, 1), 1, 256));
  const std::int64_t parts = (cols + Columns::kWidth - 1) / Columns::kWidth;
  const std::int64_t size = parts > 1 ? ((cols + parts - 1) / parts + 15) / 16 * 16 : cols;
  for (std::int64_t first = 0; first < cols; first += size)
    f(Columns{first, static_cast<int>(std::min(size, cols - first)), fold, cols * fold});
}

/// f(chunk, first row, last row) over the chunks (see chunk_rows), in parallel. `descending`: each thread
/// goes through its chunks from the last to the first, and so begins with what the pass before has left in
/// cache.
template <class F>
void for_chunks(std::int64_t rows, std::int64_t cols, bool descending, F&& f) {
  const std::int64_t size = chunk_rows(cols);
  parallel_for(chunk_count(rows, cols), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t chunk = descending ? begin + end - 1 - i : i;
      f(chunk, chunk * size, std::min(rows, (chunk + 1) * size));
    }
  });
}

/// sums[i] += the R spans' elements
template <int R, class T>
void add_rows(const T* __restrict__ x, std::int64_t stride, int width, T* __restrict__ sums) {
#pragma omp simd
  for (int i = 0; i < width; ++i) {
    if constexpr (R == 4)
      sums[i] += (x[i] + x[stride + i]) + (x[2 * stride + i] + x[3 * stride + i]);
    else
      sums[i] += x[i];
  }
}

}  // namespace ssn::kernels
