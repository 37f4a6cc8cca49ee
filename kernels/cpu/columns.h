#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/reduce.h"
#include "runtime/hd.h"
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
  /// Elements between a step and the one to be asked for while it is worked on: about 8 KB.
  template <class T>
  std::int64_t ahead() const {
    return std::max<std::int64_t>(1, 8192 / static_cast<std::int64_t>(sizeof(T)) / stride) * stride;
  }

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
  /// f(at, width): the elements of rows [begin, end) of these columns, step by step; a step is `width`
  /// elements from `at` on.
  template <class F>
  void steps(std::int64_t begin, std::int64_t end, F&& f) const {
    const std::int64_t rows = end - begin, last = rows / fold;
    const std::int64_t start = first + begin * (stride / fold);
    for (std::int64_t i = 0; i < last; ++i) f(start + i * stride, width());
    if (rows % fold) f(start + last * stride, static_cast<int>(rows % fold) * count);
  }
};

/// f(Columns) over parts of all columns.
template <class F>
void for_columns(std::int64_t cols, F&& f) {
  const int fold = static_cast<int>(
      std::clamp<std::int64_t>(Columns::kWidth / 2 / std::max<std::int64_t>(cols, 1), 1, 512));
  const std::int64_t parts = (cols + Columns::kWidth - 1) / Columns::kWidth;
  const std::int64_t size = parts > 1 ? ((cols + parts - 1) / parts + 15) / 16 * 16 : cols;
  for (std::int64_t first = 0; first < cols; first += size)
    f(Columns{first, static_cast<int>(std::min(size, cols - first)), fold, cols * fold});
}

/// The chunks of a (rows, cols) matrix on the CPU: about 128 KB of f32, which stays in a core's second-level
/// cache for another pass.
struct Chunks {
  std::int64_t rows, size, count;

  Chunks(std::int64_t rows, std::int64_t cols)
      : rows(rows), size(4 * chunk_rows(cols)), count((rows + size - 1) / size) {}
  std::int64_t begin(std::int64_t chunk) const { return chunk * size; }
  std::int64_t end(std::int64_t chunk) const { return std::min(rows, (chunk + 1) * size); }
};

/// f(chunk, first row, last row) in parallel. `descending`: each thread goes through its chunks from the last
/// to the first, and so begins with what the pass before has left in cache.
template <class F>
void for_chunks(const Chunks& chunks, bool descending, F&& f) {
  parallel_for(chunks.count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t chunk = descending ? begin + end - 1 - i : i;
      f(chunk, chunks.begin(chunk), chunks.end(chunk));
    }
  });
}

/// f(begin, end) over short parts of [0, n), each time asking for what the streams hold `ahead` elements
/// later. (With several streams and the arrays of values a column, the processor's own prefetching is often
/// half as fast; on the test machine it depended on the arrays' addresses.)
template <class F, class T, class... Ts>
void in_strips(int n, std::int64_t ahead, F&& f, const T* stream, const Ts*... streams) {
  constexpr int kStrip = 256, kLine = 64 / sizeof(T);
  for (int begin = 0; begin < n; begin += kStrip) {
    const int end = std::min(n, begin + kStrip);
    for (int i = begin; i < end; i += kLine) {
      __builtin_prefetch(stream + ahead + i);
      (__builtin_prefetch(streams + ahead + i), ...);
    }
    f(begin, end);
  }
}

/// sums[i] += x[i], i < n. (Functions that add up steps are not inlined: g++ 12 would join the loops over two
/// steps, and the sums that both then wait for halve the speed.)
template <class X, class T>
[[gnu::noinline]] SSN_CLONES void add_step(const X* __restrict__ x, int n, std::int64_t ahead,
                                           T* __restrict__ sums) {
  const auto add = [=](int begin, int end) {
#pragma omp simd
    for (int i = begin; i < end; ++i) sums[i] += x[i];
  };
  in_strips(n, ahead, add, x);
}

/// total[c] += Σ over the chunks, in their order, of parts[chunk · stride + c], c < count
template <class T>
void add_chunks(std::int64_t chunks, std::int64_t stride, const T* parts, int count, double* total) {
  for (std::int64_t k = 0; k < chunks; ++k) {
#pragma omp simd
    for (int c = 0; c < count; ++c) total[c] += parts[k * stride + c];
  }
}

}  // namespace ssn::kernels
