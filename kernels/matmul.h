#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// Of c = op(a) op(b); op(a) is (m, k), op(b) is (k, n), c is (m, n), all row-major without gaps. A
/// transposed operand is stored the other way round: a as (k, m), b as (n, k).
struct MatmulShape {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  auto operator<=>(const MatmulShape&) const = default;
};

/// c = op(a) op(b), or c += op(a) op(b) if `add`.
template <class T>
void matmul(CpuQueue&, const MatmulShape& s, const T* a, const T* b, T* c, bool add);

/// The same of bf16 operands, with bias (n), unless null, added to every row. C is bf16 or float: whatever is
/// added up is so in f32, and rounded once.
template <class C>
void half_matmul(CpuQueue&, const MatmulShape& s, const bf16* a, const bf16* b, const float* bias, C* c,
                 bool add, void* workspace);
/// Bytes of workspace that it needs.
template <class C>
std::size_t half_matmul_workspace(CpuQueue&, const MatmulShape& s, bool bias, bool add);

}  // namespace ssn::kernels
