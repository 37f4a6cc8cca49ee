#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/cpu/columns.h"
#include "runtime/hd.h"

namespace ssn::kernels {
namespace {

/// One row; kSum: of x + r. Its mean and 1 / sqrt(var + eps).
template <class T, bool kSum>
SSN_CLONES void row_forward(std::int64_t cols, double eps, const T* x, const T* r, const Wider<T>* gain,
                            const Wider<T>* bias, T* y, Wider<T>* mean, Wider<T>* rstd) {
  using W = Wider<T>;
  W sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < cols; ++c) sum += kSum ? x[c] + r[c] : W(x[c]);
  const W m = sum / static_cast<W>(cols);
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < cols; ++c) {
    const W d = (kSum ? x[c] + r[c] : W(x[c])) - m;
    squares += d * d;
  }
  const W scale = static_cast<W>(1 / std::sqrt(squares / static_cast<double>(cols) + eps));
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c)
    store(y[c], std::fma(((kSum ? x[c] + r[c] : W(x[c])) - m) * scale, gain[c], bias[c]));
  *mean = m;
  *rstd = scale;
}

/// Adds a row to the sums of gy · normalised and of gy, and writes gs unless null.
template <class T, bool kSum>
SSN_CLONES void row_backward(std::int64_t cols, const T* x, const T* r, Wider<T> mean, Wider<T> rstd,
                             const Wider<T>* gain, const T* gy, T* gs, Wider<T>* ggain, Wider<T>* gbias) {
  using W = Wider<T>;
  W sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
  for (std::int64_t c = 0; c < cols; ++c) {
    const W normal = ((kSum ? x[c] + r[c] : W(x[c])) - mean) * rstd, g = gy[c] * gain[c];
    sum += g;
    dot += g * normal;
    ggain[c] += gy[c] * normal;
    gbias[c] += gy[c];
  }
  if (!gs) return;
  const W n = static_cast<W>(cols), g_mean = sum / n, slope = -dot / n;
#pragma omp simd
  for (std::int64_t c = 0; c < cols; ++c) {
    const W normal = ((kSum ? x[c] + r[c] : W(x[c])) - mean) * rstd;
    store(gs[c], rstd * std::fma(normal, slope, gy[c] * gain[c] - g_mean));
  }
}

}  // namespace

template <class T>
void layer_norm_forward(CpuQueue&, std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* r,
                        const Wider<T>* gain, const Wider<T>* bias, T* y, Wider<T>* mean, Wider<T>* rstd) {
  parallel_for(rows, 1 + 8192 / cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = i * cols;
      const auto forward = r ? row_forward<T, true> : row_forward<T, false>;
      forward(cols, eps, x + at, r ? r + at : nullptr, gain, bias, y + at, mean + i, rstd + i);
    }
  });
}

template <class T>
void layer_norm_backward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const T* r,
                         const Wider<T>* mean, const Wider<T>* rstd, const Wider<T>* gain, const T* gy,
                         const LayerNormGradients<T>& out, Wider<T>* workspace) {
  using W = Wider<T>;
  const Chunks chunks(rows, cols);
  for_chunks(chunks, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
    W* const dots = workspace + 2 * chunk * cols;
    std::fill_n(dots, 2 * cols, W(0));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = i * cols;
      const auto backward = r ? row_backward<T, true> : row_backward<T, false>;
      backward(cols, x + at, r ? r + at : nullptr, mean[i], rstd[i], gain, gy + at,
               out.gs ? out.gs + at : nullptr, dots, dots + cols);
    }
  });
  const auto add_all = [&](const W* parts, W* to) {
    for (std::int64_t c = 0; to && c < cols; ++c) {
      double total = 0;
      for (std::int64_t k = 0; k < chunks.count; ++k) total += parts[2 * k * cols + c];
      to[c] += static_cast<W>(total);
    }
  };
  add_all(workspace, out.ggain);
  add_all(workspace + cols, out.gbias);
}

template void layer_norm_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, double, const bf16*,
                                       const bf16*, const float*, const float*, bf16*, float*, float*);
template void layer_norm_backward<bf16>(CpuQueue&, std::int64_t, std::int64_t, const bf16*, const bf16*,
                                        const float*, const float*, const float*, const bf16*,
                                        const LayerNormGradients<bf16>&, float*);
template void layer_norm_forward<float>(CpuQueue&, std::int64_t, std::int64_t, double, const float*,
                                        const float*, const float*, const float*, float*, float*, float*);
template void layer_norm_forward<double>(CpuQueue&, std::int64_t, std::int64_t, double, const double*,
                                         const double*, const double*, const double*, double*, double*,
                                         double*);
template void layer_norm_backward<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, const float*,
                                         const float*, const float*, const float*, const float*,
                                         const LayerNormGradients<float>&, float*);
template void layer_norm_backward<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                          const double*, const double*, const double*, const double*,
                                          const LayerNormGradients<double>&, double*);

}  // namespace ssn::kernels
