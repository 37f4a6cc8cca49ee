#pragma once
#include <cstddef>
#include <cstdlib>

// Which GPU the emulated ones are like.
namespace cuda_on_host {

/// Their compute capability, 90 for 9.0: that, or SSN_TEST_CAPABILITY.
inline int capability() {
  const char* given = std::getenv("SSN_TEST_CAPABILITY");
  return given ? std::atoi(given) : 90;
}

/// Bytes of dynamic shared memory that a block may ask for (CUDA C++ Programming Guide, compute
/// capabilities).
inline std::size_t most_shared() {
  switch (capability()) {
    case 75: return 64 << 10;
    case 80: return 163 << 10;
    case 86:
    case 89:
    case 120: return 99 << 10;
    default: return 227 << 10;
  }
}

}  // namespace cuda_on_host
