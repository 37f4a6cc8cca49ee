#pragma once
#include <cstddef>

namespace cuda_on_host {

/// Fills static and dynamic shared memory with 0xFF: NaN in every floating type, −1 in integers.
void fill_shared_memory();
bool in_shared_memory(const char* address);

/// The dynamic shared memory of a launch: exactly these bytes, so that AddressSanitizer sees its end.
class DynamicShared {
 public:
  explicit DynamicShared(std::size_t bytes);
  DynamicShared(const DynamicShared&) = delete;
  ~DynamicShared();
};

}  // namespace cuda_on_host
