#pragma once
#include <cuda_runtime.h>

#include "runtime/error.h"

namespace ssn {

/// Throws Error naming the operation unless `result` is cudaSuccess.
inline void cuda_check(cudaError_t result, Where where) {
  if (result == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // the error is reported here: forget it, so that later calls do not report it again
  fail(where, "{}: {} (a kernel started earlier may be the cause; SSN_SYNC=1 makes each wait for its end)",
       cudaGetErrorName(result), cudaGetErrorString(result));
}

}  // namespace ssn
