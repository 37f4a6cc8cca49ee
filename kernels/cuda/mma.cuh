#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "runtime/bf16.h"

// A warp's instructions for matrix products of bf16 on tensor cores, d (16, 8) += a (16, 16) b (16, 8), sums
// in f32. The matrices are spread over the lanes: with n = lane / 4 and c = lane % 4,
//   d[2i + e]    is element (n + 8i, 2c + e)                            i, e in {0, 1}
//   a.v[i + 2h]  holds elements (n + 8i, 8h + 2c) and the next column    i, h in {0, 1}
//   b0, b1       hold elements (2c, n) and (2c + 8, n), each with the next row
// the first element of a pair in the lower half (PTX ISA, mma.m16n8k16). Where there are no such
// instructions, before sm_80 and on the host, the same lanes compute the same thing from what shuffles bring.
namespace ssn::kernels {

/// Four registers of a lane.
struct Registers {
  std::uint32_t v[4];
};

__device__ inline std::uint32_t pair_of(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return bf16::rounded(low) | std::uint32_t{bf16::rounded(high)} << 16;
#endif
}
__device__ inline float low_of(std::uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
__device__ inline float high_of(std::uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}

/// A lane's pointer.
__device__ inline const bf16* pointer_of(const bf16* p, int lane) {
  return reinterpret_cast<const bf16*>(
      __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(p), lane));
}

/// Reads four 8x8 matrices from shared memory: lane l names row l % 8 of matrix l / 8, 16 bytes at a multiple
/// of 16. v[i] holds elements 2c and 2c + 1 of row n of matrix i.
__device__ inline Registers load_matrices(const bf16* row) {
  Registers r;
#ifdef __CUDA_ARCH__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "r"(at)
               : "memory");
#else
  const int lane = static_cast<int>(threadIdx.x) % 32, n = lane / 4, c = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const bf16* const from = pointer_of(row, 8 * i + n);
    r.v[i] = from[2 * c].bits | std::uint32_t{from[2 * c + 1].bits} << 16;
  }
#endif
  return r;
}
/// The same of the transposed matrices: v[i] holds element n of rows 2c and 2c + 1 of matrix i.
__device__ inline Registers load_transposed(const bf16* row) {
  Registers r;
#ifdef __CUDA_ARCH__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "r"(at)
               : "memory");
#else
  const int lane = static_cast<int>(threadIdx.x) % 32, n = lane / 4, c = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const bf16* const even = pointer_of(row, 8 * i + 2 * c);
    const bf16* const odd = pointer_of(row, 8 * i + 2 * c + 1);
    r.v[i] = even[n].bits | std::uint32_t{odd[n].bits} << 16;
  }
#endif
  return r;
}

/// d += a b, by all lanes of a warp together.
__device__ inline void mma(float (&d)[4], const Registers& a, std::uint32_t b0, std::uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b0), "r"(b1));
#else
  const auto joined = [](std::uint32_t low, std::uint32_t high) {
    return static_cast<unsigned long long>(high) << 32 | low;
  };
  const auto chain = [](unsigned long long x, unsigned long long y, float sum) {
    for (int half = 0; half < 2; ++half, x >>= 32, y >>= 32) {
      const auto xs = static_cast<std::uint32_t>(x), ys = static_cast<std::uint32_t>(y);
      sum = fmaf(high_of(xs), high_of(ys), fmaf(low_of(xs), low_of(ys), sum));
    }
    return sum;
  };
  const int lane = static_cast<int>(threadIdx.x) % 32, n = lane / 4, c = lane % 4;
  for (int s = 0; s < 4; ++s) {
    const unsigned long long upper = __shfl_sync(0xffffffffu, joined(a.v[0], a.v[2]), 4 * n + s);
    const unsigned long long lower = __shfl_sync(0xffffffffu, joined(a.v[1], a.v[3]), 4 * n + s);
    for (int e = 0; e < 2; ++e) {
      const unsigned long long column = __shfl_sync(0xffffffffu, joined(b0, b1), 4 * (2 * c + e) + s);
      d[e] = chain(upper, column, d[e]);
      d[2 + e] = chain(lower, column, d[2 + e]);
    }
  }
#endif
}

/// `op` over the four lanes that share rows of d.
template <class V, class Op>
__device__ V quad_reduce(V v, Op op) {
  v = op(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return op(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

}  // namespace ssn::kernels
