#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

// Gradients as they travel between GPUs with --wire bf16.
namespace ssn {

/// y = x rounded to bf16, to the nearest, ties to even. `n` elements, not in place.
void narrow(CudaQueue&, std::int64_t n, const float* x, bf16* y);
/// y = x. `n` elements, not in place.
void widen(CudaQueue&, std::int64_t n, const bf16* x, float* y);

}  // namespace ssn
