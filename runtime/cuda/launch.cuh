#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "runtime/cuda/cuda_check.h"
#include "runtime/queue.h"

// The only place that starts kernels. Under nvcc cuda_runtime.h is CUDA's; where the kernels run on the host
// (SSN_CUDA=host) it is the one of tests/cuda_on_host.

/// SSN_DYNAMIC_SHARED(T, name): in a kernel, `T* name` points to the launch's dynamic shared memory, aligned
/// to 16 bytes. At most one in a kernel.
#ifdef __CUDACC__
#define SSN_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char ssn_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(ssn_dynamic_shared)
#else
#define SSN_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::cuda_on_host::dynamic_shared())
#endif

namespace ssn {

/// Blocks of `size` elements that cover n.
constexpr unsigned blocks_for(std::int64_t n, std::int64_t size) {
  return static_cast<unsigned>((n + size - 1) / size);
}

/// Whether SSN_SYNC=1 is in the environment: each launch then waits for its kernel's end, so that a fault in
/// a kernel is reported under its operation's name.
inline bool launches_wait() {
  static const char* const value = std::getenv("SSN_SYNC");
  return value && std::string_view(value) == "1";
}

/// Starts `kernel` on the queue; arguments are converted to the types of its parameters. `shared` is in
/// bytes. Throws Error with the operation's name if the kernel cannot start.
template <class... P, class... A>
void launch(CudaQueue& q, Where where, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared,
            A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "one argument for each parameter of the kernel");
  constexpr std::size_t kUnasked = 48 << 10;  // more dynamic shared memory must be asked for, per kernel
  if (shared > kUnasked) {
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
        where);
  }
  [&](P... values) {
    void* pointers[] = {const_cast<void*>(static_cast<const volatile void*>(&values))..., nullptr};
    cuda_check(cudaLaunchKernel(kernel, grid, block, pointers, shared, q.stream), where);
  }(static_cast<P>(std::forward<A>(arguments))...);
  if (launches_wait()) cuda_check(cudaStreamSynchronize(q.stream), where);
}

}  // namespace ssn
