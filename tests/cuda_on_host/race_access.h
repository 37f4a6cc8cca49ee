#pragma once
#include <cstddef>

namespace cuda_on_host {

struct Access {
  const void* at;
  std::size_t bytes;
  void* code;  // where from
  bool write, atomic;
};
/// Every access of instrumented code comes here; ignored outside kernels.
void check_access(const Access&);

}  // namespace cuda_on_host
