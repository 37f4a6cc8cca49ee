#pragma once
#include <cstdint>

#include "runtime/queue.h"
#include "runtime/random.h"

namespace ssn::kernels {

/// What dropout keeps. Element i belongs to unit u = (first + i) / unit, which is dropped if its 32 random
/// bits, word u mod 4 of Philox's draw u / 4, are less than rate · 2³².
struct DropoutRule {
  double rate;  // in [0, 1)
  Random random;
  std::int64_t first = 0, unit = 1;  // elements

  std::uint32_t threshold() const { return static_cast<std::uint32_t>(rate * 4294967296.0); }
};

/// y = x / (1 − rate) where kept, else 0; its gradient is the same function of gy. y may alias x; both may be
/// bf16. Overwrites.
template <class T>
void dropout(CpuQueue&, std::int64_t n, const DropoutRule& rule, const T* x, T* y);
template <class T>
void dropout(CudaQueue&, std::int64_t n, const DropoutRule& rule, const T* x, T* y);

}  // namespace ssn::kernels
