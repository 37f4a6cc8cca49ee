#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
constexpr std::int64_t kTile = 64;  // a tile of b, 32 KiB, stays in the first-level cache

/// Rows [first, last) of c.
void gemm_rows(const GemmShape& s, const double* a, const double* b, double* c, std::int64_t first,
               std::int64_t last) {
  const std::int64_t a_row = s.transpose_a ? 1 : s.lda, a_col = s.transpose_a ? s.lda : 1;
  const std::int64_t b_row = s.transpose_b ? 1 : s.ldb, b_col = s.transpose_b ? s.ldb : 1;
  alignas(64) double tile[kTile][kTile];
  for (std::int64_t j0 = 0; j0 < s.n; j0 += kTile) {
    const std::int64_t width = std::min(kTile, s.n - j0);
    for (std::int64_t k0 = 0; k0 < s.k; k0 += kTile) {
      const std::int64_t depth = std::min(kTile, s.k - k0);
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t j = 0; j < width; ++j) tile[k][j] = b[(k0 + k) * b_row + (j0 + j) * b_col];
      for (std::int64_t i = first; i < last; ++i) {
        double* out = c + i * s.ldc + j0;
        for (std::int64_t k = 0; k < depth; ++k) {
          const double factor = a[i * a_row + (k0 + k) * a_col];
#pragma omp simd
          for (std::int64_t j = 0; j < width; ++j) out[j] += factor * tile[k][j];
        }
      }
    }
  }
}

void fill_zero(const GemmShape& s, auto* c, std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first; i < last; ++i) std::fill_n(c + i * s.ldc, s.n, 0);
}
}  // namespace

template <>
void gemm(const GemmShape& s, const double* a, const double* b, double* c, bool add) {
  const std::int64_t grain = 1 + 32768 / (1 + s.n * s.k);  // rows that are worth a thread
  parallel_for(s.m, grain, [&](std::int64_t first, std::int64_t last) {
    if (!add) fill_zero(s, c, first, last);
    gemm_rows(s, a, b, c, first, last);
  });
}

template <>
void gemm(const GemmShape& s, const float* a, const float* b, float* c, bool add) {
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    if (!add) fill_zero(s, c, 0, s.m);
    return;
  }
  const dnnl::status status = dnnl::sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k,
                                          1.0f, a, s.lda, b, s.ldb, add ? 1.0f : 0.0f, c, s.ldc);
  check(status == dnnl::status::success, "matmul", "oneDNN: {}, for m {}, n {}, k {}",
        dnnl_status2str(static_cast<dnnl_status_t>(status)), s.m, s.n, s.k);
}

template <class T>
void matmul(CpuQueue&, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
            const T* a, const T* b, T* c, bool add) {
  gemm({transpose_a, transpose_b, m, n, k, transpose_a ? m : k, transpose_b ? k : n, n}, a, b, c, add);
}

template void matmul<float>(CpuQueue&, bool, bool, std::int64_t, std::int64_t, std::int64_t, const float*,
                            const float*, float*, bool);
template void matmul<double>(CpuQueue&, bool, bool, std::int64_t, std::int64_t, std::int64_t, const double*,
                             const double*, double*, bool);

}  // namespace ssn::kernels
