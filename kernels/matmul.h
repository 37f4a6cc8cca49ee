#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// Of c = op(a) op(b); op(a) is (m, k), op(b) is (k, n), c is (m, n), all row-major without gaps. A
/// transposed operand is stored the other way round: a as (k, m), b as (n, k). m, n and k are at least 1.
struct MatmulShape {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  auto operator<=>(const MatmulShape&) const = default;
};

/// c = op(a) op(b), plus bias (n) in every row unless null; or, without a bias, c += op(a) op(b) if `add`. T
/// and C are both float, both double, or bf16 and either bf16 or float. What is added up is so in f32 (of
/// doubles in f64), and rounded once; on CUDA a bias is rounded to C before, and operands of float to tf32
/// where the queue's tf32 says so. c overlaps nothing else.
template <class T, class C = T>
struct Matmul {
  MatmulShape s;
  const T *a, *b;
  const Wider<C>* bias;
  C* c;
  bool add;
};

/// The same product, the same bits, on CUDA too: cuBLASLt's partial sums are added in a fixed order.
/// `workspace` has the bytes that matmul_workspace says, aligned to 256; on CUDA it is at most 32 MiB and a
/// bias.
template <class T, class C>
void matmul(CpuQueue&, const Matmul<T, C>& p, void* workspace);
template <class T, class C>
void matmul(CudaQueue&, const Matmul<T, C>& p, void* workspace);
/// Of the pointers it looks at the alignment only.
template <class T, class C>
std::size_t matmul_workspace(CpuQueue&, const Matmul<T, C>& p);
template <class T, class C>
std::size_t matmul_workspace(CudaQueue&, const Matmul<T, C>& p);

}  // namespace ssn::kernels
