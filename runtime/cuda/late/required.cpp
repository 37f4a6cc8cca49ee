#include "runtime/config.h"
#include "runtime/cuda/late/libraries.h"

namespace ssn {

std::string missing_cuda_libraries(bool sums) {
  // cuBLASLt first: cuDNN, which needs it too, then takes the same one.
  if constexpr (build::has_nccl) {
    if (sums) return missing_libraries({&cublas_lt(), &cudnn(), &nccl()});
  }
  return missing_libraries({&cublas_lt(), &cudnn()});
}

}  // namespace ssn
