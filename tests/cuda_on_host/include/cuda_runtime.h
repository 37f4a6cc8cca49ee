#pragma once
// What this project uses of the CUDA runtime's header, for a host compiler: kernels compiled with it run on
// the CPU, by the library in tests/cuda_on_host. No CUDA toolkit is needed.
#ifdef __CUDACC__
#error \
    "this cuda_runtime.h is for the host compiler: take tests/cuda_on_host/include out of nvcc's include path"
#endif
#include "cuda_on_host/device.h"
#include "cuda_on_host/math.h"
#include "cuda_on_host/runtime.h"
#include "cuda_on_host/types.h"
