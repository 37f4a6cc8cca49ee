#pragma once
#include "runtime/late_library.h"

// The libraries that CUDA builds call and are not linked to. Each has a file here that defines the functions
// that this project calls, each handed on to the library's own: a call of another one is a link error that
// names it. With SSN_CUDA=host the doubles in tests/cuda_on_host stand in their place.
namespace ssn {

LateLibrary& cublas_lt();
LateLibrary& cudnn();
LateLibrary& nccl();  // defined where build::has_nccl

/// Loads what work on a GPU needs, NCCL only for sums over the ranks. Empty if that went well, else what is
/// missing, as missing_libraries says it.
std::string missing_cuda_libraries(bool sums);

}  // namespace ssn
