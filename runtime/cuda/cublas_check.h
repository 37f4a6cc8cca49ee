#pragma once
#include <cublasLt.h>

#include "runtime/error.h"

namespace ssn {

/// Throws Error naming the operation unless `status` is CUBLAS_STATUS_SUCCESS.
inline void cublas_check(cublasStatus_t status, Where where) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(where, "cuBLASLt failed: {}: {} (CUBLASLT_LOG_LEVEL=2 tells more)", cublasLtGetStatusName(status),
       cublasLtGetStatusString(status));
}

}  // namespace ssn
