#pragma once
#include <cstdint>

#include "runtime/queue.h"

namespace ssn::kernels {

/// c = op(a) op(b), or c += op(a) op(b) if `add`; op(a) is (m, k), op(b) is (k, n), c is (m, n), all
/// row-major without gaps. A transposed operand is stored the other way round: a as (k, m), b as (n, k).
template <class T>
void matmul(CpuQueue&, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
            const T* a, const T* b, T* c, bool add);

}  // namespace ssn::kernels
