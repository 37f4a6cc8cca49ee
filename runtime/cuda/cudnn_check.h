#pragma once
#include <cudnn.h>

#include "runtime/error.h"

namespace ssn {

/// Throws Error naming the operation unless `result` is CUDNN_STATUS_SUCCESS.
inline void cudnn_check(cudnnStatus_t result, Where where) {
  if (result == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  fail(where, "cuDNN failed: {}{}{} (CUDNN_LOGLEVEL_DBG=2 and CUDNN_LOGDEST_DBG=stderr tell more)",
       cudnnGetErrorString(result), *detail ? ": " : "", detail);
}

}  // namespace ssn
