#pragma once
#include <type_traits>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pack.cuh"

// Products of matrices in shared memory, by a warp: bf16 on tensor cores, f32 and f64 by fused multiply-adds.
// All threads of the warp call the functions together.
namespace ssn::kernels {

/// Elements between the rows of a matrix in shared memory: a pack more than it has columns, so that the packs
/// at the same place of neighbouring rows lie in different banks.
template <class T, int Columns>
constexpr int kRowStride = Columns + kPack<T>;

/// 16 rows and N columns of sums, spread over a warp as mma.cuh spreads d: v[t][2i + e] is element (n + 8i,
/// 8t + 2c + e), with n = lane / 4 and c = lane % 4. N is a multiple of 16.
template <class T, int N>
struct WarpTile {
  static_assert(N % 16 == 0);
  static constexpr int kTiles = N / 8;
  Wider<T> v[kTiles][4] = {};

  /// f(value, 2i + e, column) for a lane's elements.
  template <class F>
  __device__ void each(F&& f) {
    const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int j = 0; j < 4; ++j) f(v[t][j], j, 8 * t + 2 * c + j % 2);
  }
};

/// Row i of a lane's two.
__device__ inline int warp_row(int i) {
  return static_cast<int>(threadIdx.x) % 32 / 4 + 8 * i;
}

/// d += a bᵀ for a (16, K) and b (N, K).
template <int K, class T, int N>
__device__ void add_product_transposed(WarpTile<T, N>& d, const T* a, int a_stride, const T* b,
                                       int b_stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (std::is_same_v<T, bf16>) {
    const bf16* const a_row = a + lane % 16 * a_stride + lane / 16 * 8;
    const bf16* const b_row = b + (lane % 8 + lane / 16 * 8) * b_stride + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
      const Registers x = load_matrices(a_row + k);
#pragma unroll
      for (int t = 0; t < N / 8; t += 2) {
        const Registers w = load_matrices(b_row + 8 * t * b_stride + k);
        mma(d.v[t], x, w.v[0], w.v[1]);
        mma(d.v[t + 1], x, w.v[2], w.v[3]);
      }
    }
  } else {
    using P = Pack<T, kPack<T>>;
    const T* const b_row = b + lane % 4 * 2 * b_stride;
#pragma unroll 2
    for (int k = 0; k < K; k += kPack<T>) {
      const P x[2] = {P::load(a + warp_row(0) * a_stride + k), P::load(a + warp_row(1) * a_stride + k)};
#pragma unroll
      for (int t = 0; t < N / 8; ++t)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const P w = P::load(b_row + (8 * t + e) * b_stride + k);
#pragma unroll
          for (int j = 0; j < kPack<T>; ++j) {
            d.v[t][e] = fma(x[0][j], w[j], d.v[t][e]);
            d.v[t][2 + e] = fma(x[1][j], w[j], d.v[t][2 + e]);
          }
        }
    }
  }
}

/// Elements of shared memory that a warp lends to add_product.
template <class T, int K>
constexpr int kProductScratch = std::is_same_v<T, bf16> ? 0 : 16 * kRowStride<T, K>;

/// d += a b for a (16, K), rounded to T, and b (K, N) in shared memory.
template <class T, int K, int N>
__device__ void add_product(WarpTile<T, N>& d, WarpTile<T, K>& a, const T* b, int b_stride, T* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (std::is_same_v<T, bf16>) {
    const bf16* const b_row = b + lane % 16 * b_stride + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
      const auto &left = a.v[k / 8], &right = a.v[k / 8 + 1];
      const Registers x = {pair_of(left[0], left[1]), pair_of(left[2], left[3]), pair_of(right[0], right[1]),
                           pair_of(right[2], right[3])};
#pragma unroll
      for (int t = 0; t < N / 8; t += 2) {
        const Registers w = load_transposed(b_row + k * b_stride + 8 * t);
        mma(d.v[t], x, w.v[0], w.v[1]);
        mma(d.v[t + 1], x, w.v[2], w.v[3]);
      }
    }
  } else {
    using P = Pack<T, kPack<T>>;
    constexpr int kStride = kRowStride<T, K>;
    __syncwarp();  // the last product has read `scratch`
    a.each([&](T value, int j, int column) { scratch[warp_row(j / 2) * kStride + column] = value; });
    __syncwarp();
#pragma unroll 1
    for (int k = 0; k < K; k += kPack<T>) {
      const P x[2] = {P::load(scratch + warp_row(0) * kStride + k),
                      P::load(scratch + warp_row(1) * kStride + k)};
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j)
#pragma unroll
        for (int t = 0; t < N / 8; ++t) {
          const auto w = Pack<T, 2>::load(b + (k + j) * b_stride + 8 * t + lane % 4 * 2);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            d.v[t][e] = fma(x[0][j], w[e], d.v[t][e]);
            d.v[t][2 + e] = fma(x[1][j], w[e], d.v[t][2 + e]);
          }
        }
    }
  }
}

}  // namespace ssn::kernels
