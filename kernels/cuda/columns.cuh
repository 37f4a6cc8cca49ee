#pragma once
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/reduce.h"
#include "runtime/cuda/launch.cuh"

// Kernels over (rows, cols) matrices in which a thread keeps to one pack of columns: what belongs to the
// columns stays in registers, and neighbouring threads read neighbouring addresses whatever the number of
// columns.
namespace ssn::kernels {

constexpr int kColumnThreads = 256;

/// How blocks cover a matrix: blockIdx.x counts chunks of rows, blockIdx.y parts of the columns; a block is
/// as wide as it has packs of columns (at most kColumnThreads) and as high as its threads suffice for.
struct ColumnLaunch {
  dim3 grid, block;

  ColumnLaunch(std::int64_t chunks, std::int64_t packs) {
    block.x = static_cast<unsigned>(packs < kColumnThreads ? packs : kColumnThreads);
    block.y = kColumnThreads / block.x;
    grid.x = static_cast<unsigned>(chunks);
    grid.y = blocks_for(packs, block.x);
  }
};

/// Calls f(integral_constant V) with the widest pack, kPack<T> or 1, that `cols` and the pointers allow.
template <class T, class F, class... P>
void with_pack(std::int64_t cols, F&& f, const P*... pointers) {
  if (cols % kPack<T> == 0 && (aligned16(pointers) && ...))
    f(std::integral_constant<int, kPack<T>>{});
  else
    f(std::integral_constant<int, 1>{});
}

/// The thread's part of a matrix: its columns, and every blockDim.y-th row of the block's chunk.
template <int V>
struct ColumnThread {
  std::int64_t cols, column, begin, end, first;

  __device__ ColumnThread(std::int64_t rows, std::int64_t cols, std::int64_t chunk_rows)
      : cols(cols),
        column((std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * V),
        begin(std::int64_t{blockIdx.x} * chunk_rows),
        end(begin + chunk_rows < rows ? begin + chunk_rows : rows),
        first(begin + threadIdx.y) {}
  __device__ bool active() const { return column < cols; }
  /// Index of the row's pack in the matrix.
  __device__ std::int64_t at(std::int64_t row) const { return row * cols + column; }
  /// f(row) for the thread's rows; not at all for an inactive thread.
  template <class F>
  __device__ void each_row(F&& f) const {
    if (!active()) return;
#pragma unroll 4
    for (std::int64_t row = first; row < end; row += blockDim.y) f(row);
  }
  /// f(index of the pack in the matrix)
  template <class F>
  __device__ void each(F&& f) const {
    each_row([&](std::int64_t row) { f(at(row)); });
  }
};

/// The sum of `value` over the threads of a block that share threadIdx.x, in a fixed order; every thread gets
/// it. All threads of the block must call it.
template <class T, int V>
__device__ Values<T, V> column_reduce(const Values<T, V>& value) {
  __shared__ Values<T, V> sums[kColumnThreads];
  const int at = threadIdx.y * blockDim.x + threadIdx.x;
  sums[at] = value;
  int height = blockDim.y;
  __syncthreads();
  while (height > 1) {
    const int half = (height + 1) / 2, other = at + half * static_cast<int>(blockDim.x);
    if (static_cast<int>(threadIdx.y) + half < height) {
#pragma unroll
      for (int i = 0; i < V; ++i) sums[at][i] += sums[other][i];
    }
    height = half;
    __syncthreads();
  }
  const Values<T, V> total = sums[threadIdx.x];
  __syncthreads();  // the next call writes `sums` again
  return total;
}

}  // namespace ssn::kernels
