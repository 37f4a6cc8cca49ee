#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/hd.h"

// The inner loops of generation, over pieces that stay in the first-level cache. Bits do not depend on how
// they are vectorised: sums have a fixed number of lanes.
namespace ssn::kernels {

constexpr int kBatch = 4;  // terms that one pass over a piece takes

template <class T>
std::size_t bytes_of(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(T);
}

// ---- templates

template <class T, int B, bool add>
[[gnu::always_inline]] inline void combine_terms(std::int64_t n, const T* a, const T* const* theta, T* w) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    T sum = add ? std::fma(a[0], theta[0][i], w[i]) : a[0] * theta[0][i];
    for (int b = 1; b < B; ++b) sum = std::fma(a[b], theta[b][i], sum);
    w[i] = sum;
  }
}

/// w[i] = Σ_b a[b] · theta[b][i] for b < count <= kBatch; with `add`, w[i] += it.
template <class T>
SSN_CLONES void combine(int count, bool add, std::int64_t n, const T* a, const T* const* theta, T* w) {
  switch (count + (add ? kBatch : 0)) {
    case 1: return combine_terms<T, 1, false>(n, a, theta, w);
    case 2: return combine_terms<T, 2, false>(n, a, theta, w);
    case 3: return combine_terms<T, 3, false>(n, a, theta, w);
    case 4: return combine_terms<T, 4, false>(n, a, theta, w);
    case 5: return combine_terms<T, 1, true>(n, a, theta, w);
    case 6: return combine_terms<T, 2, true>(n, a, theta, w);
    case 7: return combine_terms<T, 3, true>(n, a, theta, w);
    case 8: return combine_terms<T, 4, true>(n, a, theta, w);
  }
}

template <class T, int B>
[[gnu::always_inline]] inline void add_scaled_terms(std::int64_t n, const T* theta, const T* coefficients,
                                                    const T* const* grads, T* theta_grad, T* dots) {
  constexpr int L = 64 / sizeof(T);
  constexpr std::int64_t kBlock = 32 * L;  // what the first loop reads, the second finds close at hand
  typedef T Lanes __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
  T a[B];
  const T* g[B];  // copies: stores to theta_grad cannot change them
  std::copy_n(coefficients, B, a);
  std::copy_n(grads, B, g);
  Lanes sums[B] = {};
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t end = std::min(at + kBlock, n), whole = end - (end - at) % L;
#pragma omp simd
    for (std::int64_t i = at; i < end; ++i) {
      T d = theta_grad[i];
      for (int b = 0; b < B; ++b) d = std::fma(a[b], g[b][i], d);
      theta_grad[i] = d;
    }
    for (std::int64_t i = at; i < whole; i += L)
      for (int b = 0; b < B; ++b)
        sums[b] += *reinterpret_cast<const Lanes*>(theta + i) * *reinterpret_cast<const Lanes*>(g[b] + i);
    for (std::int64_t i = whole; i < end; ++i)
      for (int b = 0; b < B; ++b) sums[b][i - whole] += theta[i] * g[b][i];
  }
  for (int b = 0; b < B; ++b) {
    T lanes[L];
    std::memcpy(lanes, &sums[b], sizeof(lanes));
    for (int half = L / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    dots[b] = lanes[0];
  }
}

/// theta_grad[i] += Σ_b a[b] · g[b][i], b ascending; dots[b] = Σ_i theta[i] · g[b][i]; b < count <= kBatch.
template <class T>
SSN_CLONES void add_scaled(int count, std::int64_t n, const T* theta, const T* a, const T* const* g,
                           T* theta_grad, T* dots) {
  switch (count) {
    case 1: return add_scaled_terms<T, 1>(n, theta, a, g, theta_grad, dots);
    case 2: return add_scaled_terms<T, 2>(n, theta, a, g, theta_grad, dots);
    case 3: return add_scaled_terms<T, 3>(n, theta, a, g, theta_grad, dots);
    case 4: return add_scaled_terms<T, 4>(n, theta, a, g, theta_grad, dots);
  }
}

// ---- masks

constexpr std::int64_t kShortWindow = 32;  // windows below are repeated, so that rows fill vectors
constexpr int kRepeats = 16;

/// Elements of a row of masks: a window, or kRepeats short ones.
constexpr std::int64_t mask_row(std::int64_t window) {
  return window < kShortWindow ? kRepeats * window : window;
}

/// The first `n` elements of a row whose first element has the place `phase` in the window.
template <class T>
void fill_mask_row(const T* mask, std::int64_t window, std::int64_t phase, std::int64_t n, T* row) {
  const std::int64_t tail = std::min(n, window - phase);
  std::copy(mask + phase, mask + phase + tail, row);
  std::copy(mask, mask + std::min(n - tail, phase), row + tail);
  for (std::int64_t have = window; have < n; have *= 2)
    std::copy(row, row + std::min(have, n - have), row + have);
}

/// w[i] = c[i mod row] · theta[i]
template <class T>
SSN_CLONES void multiply_rows(std::int64_t n, std::int64_t row, const T* c, const T* theta, T* w) {
  for (std::int64_t at = 0; at < n; at += row) {
    const std::int64_t length = std::min(row, n - at);
#pragma omp simd
    for (std::int64_t j = 0; j < length; ++j) w[at + j] = c[j] * theta[at + j];
  }
}

/// Distance of the rows of several masks.
constexpr std::int64_t kRowStride = kRepeats * kShortWindow;

template <class T, int B>
[[gnu::always_inline]] inline void add_masked_terms(std::int64_t n, std::int64_t row, const T* theta,
                                                    const T* c, const T* const* g, T* theta_grad, T* sums) {
  for (std::int64_t at = 0; at < n; at += row) {
    const std::int64_t length = std::min(row, n - at);
#pragma omp simd
    for (std::int64_t j = 0; j < length; ++j) {
      const T t = theta[at + j];
      T d = theta_grad[at + j];
      for (int b = 0; b < B; ++b) {
        const T x = g[b][at + j];
        d = std::fma(c[b * kRowStride + j], x, d);
        sums[b * kRowStride + j] = std::fma(t, x, sums[b * kRowStride + j]);
      }
      theta_grad[at + j] = d;
    }
  }
}

/// For b < count <= kBatch, with the rows of masks c[b] and of sums kRowStride apart (one mask: any row),
/// theta_grad[i] += Σ_b c[b][i mod row] · g[b][i], b ascending;
/// sums[b][j] += Σ over i ≡ j mod row of theta[i] · g[b][i].
template <class T>
SSN_CLONES void add_masked(int count, std::int64_t n, std::int64_t row, const T* theta, const T* c,
                           const T* const* g, T* theta_grad, T* sums) {
  switch (count) {
    case 1: return add_masked_terms<T, 1>(n, row, theta, c, g, theta_grad, sums);
    case 2: return add_masked_terms<T, 2>(n, row, theta, c, g, theta_grad, sums);
    case 3: return add_masked_terms<T, 3>(n, row, theta, c, g, theta_grad, sums);
    case 4: return add_masked_terms<T, 4>(n, row, theta, c, g, theta_grad, sums);
  }
}

/// Adds up the windows of a row of kRepeats, into the first.
template <class T>
void fold_row(std::int64_t window, T* row) {
  for (std::int64_t half = kRepeats / 2 * window; half >= window; half /= 2) {
#pragma omp simd
    for (std::int64_t j = 0; j < half; ++j) row[j] += row[j + half];
  }
}

// ---- results beyond the caches

/// to[i] = from[i] past the caches where the processor can, for results too large to be found there again.
template <class T>
void stream_copy(std::int64_t n, const T* from, T* to) {
  typedef float Line __attribute__((vector_size(32)));
  constexpr std::int64_t L = sizeof(Line) / sizeof(T);
  const auto past =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % sizeof(Line) / sizeof(T));
  std::int64_t i = past == 0 ? 0 : std::min(L - past, n);
  std::memcpy(to, from, bytes_of<T>(i));
  const auto store = [](auto* p, const auto& line) {
    if constexpr (requires { __builtin_ia32_movntps256(p, line); })
      __builtin_ia32_movntps256(p, line);
    else
      std::memcpy(p, &line, sizeof(line));
  };
  for (; i + L <= n; i += L) {
    Line line;
    std::memcpy(&line, from + i, sizeof(line));
    store(reinterpret_cast<float*>(to + i), line);
  }
  std::memcpy(to + i, from + i, bytes_of<T>(n - i));
}

}  // namespace ssn::kernels
