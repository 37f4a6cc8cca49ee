#pragma once
#include "runtime/cuda/launch.cuh"
#include "runtime/hd.h"

// Reductions in an order that depends on sizes only, so that the same input gives the same bits.
namespace ssn::kernels {

struct Sum {
  template <class T>
  SSN_HD T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN if either is.
struct Max {
  template <class T>
  SSN_HD T operator()(T a, T b) const {
    return a < b || b != b ? b : a;
  }
};

constexpr int kWarp = 32;

/// `op` (commutative) over the values of a full warp; every lane gets the result, in the same bits.
template <class T, class Op>
__device__ T warp_reduce(T v, Op op) {
#pragma unroll
  for (int d = kWarp / 2; d > 0; d /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

/// `op` (commutative) over the values of a block, `identity` being neutral; every thread gets the result, in
/// the same bits. For one-dimensional blocks of whole warps; all their threads must call it.
template <class T, class Op>
__device__ T block_reduce(T v, Op op, T identity) {
  __shared__ T warps[kWarp];
  const int lane = threadIdx.x % kWarp;
  v = warp_reduce(v, op);
  if (lane == 0) warps[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = warp_reduce(lane < static_cast<int>(blockDim.x / kWarp) ? warps[lane] : identity, op);
  __syncthreads();  // the next call writes `warps` again
  return v;
}

constexpr int kMergeWarps = 32, kMergeThreads = kWarp * kMergeWarps;

/// The sum of `value` over the kMergeWarps warps of a block, in their order; every thread gets that of its
/// lane. All threads of the block must call it.
__device__ inline double sum_over_warps(double value) {
  __shared__ double values[kMergeWarps][kWarp];
  const int lane = threadIdx.x % kWarp;
  values[threadIdx.x / kWarp][lane] = value;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kMergeWarps; ++w) sum += values[w][lane];
  __syncthreads();  // the next call writes `values` again
  return sum;
}

constexpr int kSumRows = 8, kSumThreads = kWarp * kSumRows;

/// A block owns kWarp columns; warp r of its kSumRows warps adds up the rows r, r + kSumRows, ...
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_rows_kernel(std::int64_t rows, std::int64_t columns, const T* x, T* y, bool add) {
  __shared__ T sums[kSumRows][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + lane;
  T sum = 0;
  if (column < columns) {
    for (std::int64_t row = warp; row < rows; row += kSumRows) sum += x[row * columns + column];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns) return;
#pragma unroll
  for (int w = 1; w < kSumRows; ++w) sum += sums[w][lane];
  y[column] = add ? y[column] + sum : sum;
}

/// y[c] = Σ_r x[r][c], or y[c] += it, for x (rows, columns): the second stage of a reduction whose first left
/// one row of partial sums a block. Any rows, zero included; nothing happens for no columns.
template <class T>
void sum_rows(CudaQueue& q, Where where, std::int64_t rows, std::int64_t columns, const T* x, T* y,
              bool add) {
  if (columns == 0) return;
  launch(q, where, sum_rows_kernel<T>, blocks_for(columns, kWarp), kSumThreads, 0, rows, columns, x, y, add);
}

}  // namespace ssn::kernels
