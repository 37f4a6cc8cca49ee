#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "runtime/bf16.h"
#include "runtime/hd.h"

namespace ssn::kernels {

/// N elements that one load or store moves: up to 16 bytes, from an address aligned to the pack's size.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  static_assert(sizeof(T) * N <= 16 && (N & (N - 1)) == 0,
                "a pack is 1, 2, 4, 8 or 16 elements and at most 16 bytes");
  T v[N];

  __device__ static Pack load(const T* from) { return *reinterpret_cast<const Pack*>(from); }
  __device__ void store(T* to) const { *reinterpret_cast<Pack*>(to) = *this; }
  __device__ static Pack filled(T value) {
    Pack p;
#pragma unroll
    for (int i = 0; i < N; ++i) p.v[i] = value;
    return p;
  }
  __device__ T& operator[](int i) {
    return v[i];
  }
  __device__ const T& operator[](int i) const {
    return v[i];
  }
};

/// Elements of T in a full pack.
template <class T>
constexpr int kPack = 16 / sizeof(T);

/// N numbers in a thread's registers, as arithmetic wants them: W is Wider<T> of the T that they are in
/// memory, where they take one pack or several.
template <class W, int N>
struct alignas(sizeof(W) * N < 16 ? sizeof(W) * N : 16) Values {
  W v[N];

  template <class T>
  __device__ static Values load(const T* from) {
    constexpr int kStep = N < kPack<T> ? N : kPack<T>;
    Values all;
#pragma unroll
    for (int first = 0; first < N; first += kStep) {
      const auto pack = Pack<T, kStep>::load(from + first);
#pragma unroll
      for (int i = 0; i < kStep; ++i) all.v[first + i] = pack[i];
    }
    return all;
  }
  /// Rounds to T.
  template <class T>
  __device__ void store(T* to) const {
    constexpr int kStep = N < kPack<T> ? N : kPack<T>;
#pragma unroll
    for (int first = 0; first < N; first += kStep) {
      Pack<T, kStep> pack;
#pragma unroll
      for (int i = 0; i < kStep; ++i) ssn::store(pack[i], v[first + i]);
      pack.store(to + first);
    }
  }
  __device__ static Values filled(W value) {
    Values all;
#pragma unroll
    for (int i = 0; i < N; ++i) all.v[i] = value;
    return all;
  }
  __device__ W& operator[](int i) {
    return v[i];
  }
  __device__ const W& operator[](int i) const {
    return v[i];
  }
};

/// Whether full packs can be read from or written to p.
SSN_HD inline bool aligned16(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

/// A full pack from any address; only the first `count` elements exist, the others are 0.
template <class T>
__device__ Pack<T, kPack<T>> load_pack(const T* from, std::int64_t count) {
  using P = Pack<T, kPack<T>>;
  if (count >= kPack<T> && aligned16(from)) return P::load(from);
  P p;
#pragma unroll
  for (int c = 0; c < kPack<T>; ++c) p[c] = c < count ? from[c] : T(0);
  return p;
}
/// Its first `count` elements, to any address of global memory.
template <class T>
__device__ void store_pack(const Pack<T, kPack<T>>& p, T* to, std::int64_t count) {
  if (count >= kPack<T> && aligned16(to)) {
    // By name, or nvcc takes this way and the other for the same four narrow stores.
    if constexpr (std::is_same_v<T, float>)
      return __stcg(reinterpret_cast<float4*>(to), make_float4(p[0], p[1], p[2], p[3]));
    else
      return p.store(to);
  }
#pragma unroll
  for (int c = 0; c < kPack<T>; ++c)
    if (c < count) to[c] = p[c];
}

}  // namespace ssn::kernels
