#pragma once
#include <cstddef>
#include <cstdint>

#include "runtime/queue.h"

// Raw memory of each device, overloaded on the queue; the CUDA side is runtime/cuda/device_memory.cpp.
namespace ssn::memory {

void* allocate(
    CpuQueue&,
    std::size_t bytes);  // aligned to 256 bytes; throws Error with the pool's figures if there is none
void* allocate(CudaQueue&, std::size_t bytes);
void release(CpuQueue&, void* data);
void release(CudaQueue&, void* data);
/// Memory of the CPU in pages that stay where they are. Any thread. Defined in CUDA builds only.
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* data);
void fill_bytes(CpuQueue&, void* data, int value, std::size_t bytes);
void fill_bytes(CudaQueue&, void* data, int value, std::size_t bytes);
/// `count` elements of `bytes` (1, 2, 4 or 8) each, all like the one at `value`, which is on the host.
/// Returns without waiting.
void fill(CudaQueue&, void* data, const void* value, std::size_t bytes, std::int64_t count);
/// Any pair of places, ordered after the work queued so far; from and to the host it has finished on return.
void copy(CpuQueue&, void* to, const void* from, std::size_t bytes);
void copy(CudaQueue&, void* to, const void* from, std::size_t bytes);
/// Waits for the queued work.
inline void synchronize(CpuQueue&) {}
void synchronize(CudaQueue&);

}  // namespace ssn::memory
