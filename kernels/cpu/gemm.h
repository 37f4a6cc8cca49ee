#pragma once
#include <cstdint>

namespace ssn::kernels {

/// matmul of doubles with leading dimensions: the distances between the rows of a, b and c as they are
/// stored.
struct GemmShape {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
};
/// c = op(a) op(b), or c += op(a) op(b). Each element of c adds its products in the order of k, on any number
/// of threads.
void gemm(const GemmShape& s, const double* a, const double* b, double* c, bool add);

}  // namespace ssn::kernels
