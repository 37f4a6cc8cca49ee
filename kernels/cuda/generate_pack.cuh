#pragma once
#include "kernels/cuda/pack.cuh"

// Packs at addresses that need not be aligned: templates and tiles start anywhere.
namespace ssn::kernels {

template <class T>
using FullPack = Pack<T, kPack<T>>;

/// Elements from the last aligned address up to p.
template <class T>
__device__ int elements_past_alignment(const T* p) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % 16 / sizeof(T));
}

/// Elements [at, at + kPack) of the `size` at `base`; those outside are 0. Where the address is not aligned,
/// the two aligned packs around it.
template <class T>
__device__ FullPack<T> load_pack(const T* base, std::int64_t at, std::int64_t size) {
  constexpr int N = kPack<T>;
  const int past = elements_past_alignment(base + at);
  if (past == 0 && at >= 0 && at + N <= size) return FullPack<T>::load(base + at);
  FullPack<T> p;
  if (past > 0 && at - past >= 0 && at - past + 2 * N <= size) {
    const FullPack<T> a = FullPack<T>::load(base + at - past), b = FullPack<T>::load(base + at - past + N);
#pragma unroll
    for (int s = 1; s < N; ++s) {
      if (s != past) continue;
#pragma unroll
      for (int v = 0; v < N; ++v) p[v] = s + v < N ? a[(s + v) % N] : b[(s + v) % N];
    }
    return p;
  }
#pragma unroll
  for (int v = 0; v < N; ++v) p[v] = at + v >= 0 && at + v < size ? base[at + v] : T(0);
  return p;
}

}  // namespace ssn::kernels
