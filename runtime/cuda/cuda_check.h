#pragma once
#include <cuda_runtime.h>

#include "runtime/error.h"
#include "runtime/flavour.h"

namespace ssn {

/// Throws Error naming the operation unless `result` is cudaSuccess.
inline void cuda_check(cudaError_t result, Where where) {
  if (result == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // the error is reported here: forget it, so that later calls do not report it again
  const int code = static_cast<int>(result);
  const bool late = !build::cuda_on_host && code >= 700;  // of a kernel that was running
  const bool recording = code >= 900 && code <= 910;
  fail(where, "{}: {}{}", cudaGetErrorName(result), cudaGetErrorString(result),
       recording ? " (while a step is recorded: --graph off queues each)"
       : late ? " (a kernel started earlier may be the cause: SSN_SYNC=1 makes each launch wait for its end)"
              : "");
}

}  // namespace ssn
