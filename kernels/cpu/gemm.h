#pragma once
#include <cstdint>

namespace ssn::kernels {

/// matmul with leading dimensions: the distances between the rows of a, b and c as they are stored.
struct GemmShape {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
};
/// c = op(a) op(b), or c += op(a) op(b). In f64 each element of c adds its products in the order of k, on any
/// number of threads; in f32 the order is oneDNN's.
template <class T>
void gemm(const GemmShape& s, const T* a, const T* b, T* c, bool add);

}  // namespace ssn::kernels
