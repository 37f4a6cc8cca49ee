#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "cuda_on_host/types.h"

// The device language: qualifiers, built-in variables, barriers, warp functions, atomics. Where a thread must
// wait, the caller's line is recorded: it names the barrier in messages, and tells one barrier from another.

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
// A plain static, so that AddressSanitizer guards its end (it does not for thread_local). The attribute puts
// it into sections of its own (.noinit*), by which the emulator finds all shared memory.
#define __shared__ static __attribute__((noinit))

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace cuda_on_host {

using Site = std::source_location;

/// One lane's call of a warp function; it is complete when all lanes that it names have called.
struct WarpCall {
  enum Kind : std::uint8_t { sync, shuffle, vote } kind;
  unsigned mask;
  Site at;
  const void* in = nullptr;  // shuffle: the value; vote: an int
  void* out = nullptr;       // shuffle: the value; vote: unsigned[2], the lanes that said yes and all lanes
  std::size_t bytes = 0;
  int source_lane = 0;
};
void wait_for_warp(WarpCall&);

/// What __syncthreads_count and its kin need: how many threads said yes, of how many.
struct BlockVote {
  int yes = 0, all = 0;
};
BlockVote wait_for_block(Site at, int predicate);

/// The launch's dynamic shared memory.
void* dynamic_shared();
/// Lane of the running thread.
int lane();
/// Tells the race check of an atomic access.
void note_atomic(const void* at, std::size_t bytes, void* code);

template <class T>
T shuffle(unsigned mask, T value, int source_lane, Site at) {
  static_assert(std::is_trivially_copyable_v<T>);
  T out = value;
  WarpCall call{WarpCall::shuffle, mask, at, &value, &out, sizeof(T), source_lane};
  wait_for_warp(call);
  return out;
}
struct WarpVote {
  unsigned yes, all;
};
inline WarpVote vote(unsigned mask, int predicate, Site at) {
  WarpVote out{};
  WarpCall call{WarpCall::vote, mask, at, &predicate, &out, sizeof predicate, 0};
  wait_for_warp(call);
  return out;
}

}  // namespace cuda_on_host

inline void __syncthreads(cuda_on_host::Site at = cuda_on_host::Site::current()) {
  cuda_on_host::wait_for_block(at, 0);
}
inline int __syncthreads_count(int predicate, cuda_on_host::Site at = cuda_on_host::Site::current()) {
  return cuda_on_host::wait_for_block(at, predicate).yes;
}
inline int __syncthreads_or(int predicate, cuda_on_host::Site at = cuda_on_host::Site::current()) {
  return cuda_on_host::wait_for_block(at, predicate).yes > 0;
}
inline int __syncthreads_and(int predicate, cuda_on_host::Site at = cuda_on_host::Site::current()) {
  const auto v = cuda_on_host::wait_for_block(at, predicate);
  return v.yes == v.all;
}
inline void __syncwarp(unsigned mask = ~0u, cuda_on_host::Site at = cuda_on_host::Site::current()) {
  cuda_on_host::WarpCall call{cuda_on_host::WarpCall::sync, mask, at};
  cuda_on_host::wait_for_warp(call);
}

// A lane whose source lies outside its group of `width` lanes keeps its own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              cuda_on_host::Site at = cuda_on_host::Site::current()) {
  const int first = cuda_on_host::lane() & ~(width - 1);
  return cuda_on_host::shuffle(mask, value, first + (source & (width - 1)), at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 cuda_on_host::Site at = cuda_on_host::Site::current()) {
  const int lane = cuda_on_host::lane(), d = static_cast<int>(distance);
  return cuda_on_host::shuffle(mask, value, (lane & (width - 1)) < d ? lane : lane - d, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   cuda_on_host::Site at = cuda_on_host::Site::current()) {
  const int lane = cuda_on_host::lane(), d = static_cast<int>(distance);
  return cuda_on_host::shuffle(mask, value, (lane & (width - 1)) + d >= width ? lane : lane + d, at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  cuda_on_host::Site at = cuda_on_host::Site::current()) {
  const int lane = cuda_on_host::lane(), source = lane ^ bits;
  return cuda_on_host::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, at);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              cuda_on_host::Site at = cuda_on_host::Site::current()) {
  return cuda_on_host::vote(mask, predicate, at).yes;
}
inline int __any_sync(unsigned mask, int predicate, cuda_on_host::Site at = cuda_on_host::Site::current()) {
  return cuda_on_host::vote(mask, predicate, at).yes != 0;
}
inline int __all_sync(unsigned mask, int predicate, cuda_on_host::Site at = cuda_on_host::Site::current()) {
  const auto v = cuda_on_host::vote(mask, predicate, at);
  return v.yes == v.all;
}
// No __activemask: its result depends on how the hardware happens to converge.

inline void __threadfence() {}
inline void __threadfence_block() {}

// Atomics are plain updates, since one thread runs at a time; their order follows the schedule. Not inlined,
// so that the return address is the kernel's.
#define CUDA_ON_HOST_ATOMIC(NAME, EXPRESSION)                                                    \
  template <class T>                                                                             \
  __attribute__((noinline, no_sanitize("thread"))) T NAME(T* p, std::type_identity_t<T> value) { \
    cuda_on_host::note_atomic(p, sizeof(T), __builtin_return_address(0));                        \
    const T old = *p;                                                                            \
    *p = static_cast<T>(EXPRESSION);                                                             \
    return old;                                                                                  \
  }
CUDA_ON_HOST_ATOMIC(atomicAdd, old + value)
CUDA_ON_HOST_ATOMIC(atomicSub, old - value)
CUDA_ON_HOST_ATOMIC(atomicExch, value)
CUDA_ON_HOST_ATOMIC(atomicMax, old < value ? value : old)
CUDA_ON_HOST_ATOMIC(atomicMin, value < old ? value : old)
CUDA_ON_HOST_ATOMIC(atomicAnd, old& value)
CUDA_ON_HOST_ATOMIC(atomicOr, old | value)
CUDA_ON_HOST_ATOMIC(atomicXor, old ^ value)
#undef CUDA_ON_HOST_ATOMIC
template <class T>
__attribute__((noinline, no_sanitize("thread"))) T atomicCAS(T* p, std::type_identity_t<T> expected,
                                                             std::type_identity_t<T> value) {
  cuda_on_host::note_atomic(p, sizeof(T), __builtin_return_address(0));
  const T old = *p;
  if (old == expected) *p = value;
  return old;
}
