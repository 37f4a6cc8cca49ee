#pragma once
#include <cstdint>
#include <string>

#include "runtime/device.h"

struct CUstream_st;  // cudaStream_t, without the CUDA headers

namespace ssn {

/// Where work goes. Kernels are overloaded on the queue's type; naming one needs no CUDA header.
class CpuQueue {};
class CudaQueue {
 public:
  CUstream_st* stream = nullptr;
  /// Whether matrix products and convolutions of f32 may round their operands to tf32 (10 bits of mantissa)
  /// for the tensor cores; sums stay f32. Set it before the first step: results change with it.
  bool tf32 = false;
};

CpuQueue& cpu_queue();
CudaQueue& cuda_queue();  // defined in CUDA builds only
int cuda_device_count();  // defined in CUDA builds only; 0 without a driver
/// What this machine lacks for work on that GPU, with `sums` for sums over the ranks in its memory too, and
/// where that was looked for, as "sees no CUDA device ...", or that this build is for other GPUs; empty if
/// nothing. Defined in CUDA builds only.
std::string missing_for_cuda(int device = 0, bool sums = false);
/// Makes one of the devices that this process sees that of cuda_queue(), before its first use; the first one
/// is without it. Returns its bus address, which names it on its machine. Defined in CUDA builds only.
std::string use_cuda_device(int device);
/// Of the device of cuda_queue(): 90 is 9.0. Defined in CUDA builds only.
int cuda_compute_capability();
/// Bytes of shared memory that one of its blocks may ask for: 64 KiB with 7.5, 227 with 9.0. Defined in CUDA
/// builds only.
std::int64_t cuda_shared_memory();

}  // namespace ssn
