#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "runtime/hd.h"

// The inner loops of generation over contiguous pieces, a piece being small enough to stay in the first-level
// cache. Bits do not depend on how the compiler vectorises: sums have a fixed number of lanes.
namespace ssn::kernels {

/// w[i] = Σ_b a[b] · theta[b][i], or w[i] += it, as a chain of fused multiply-adds.
template <class T, int B, bool add>
[[gnu::always_inline]] inline void combine(std::int64_t n, const T* a, const T* const* theta, T* w) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    T sum = add ? std::fma(a[0], theta[0][i], w[i]) : a[0] * theta[0][i];
    for (int b = 1; b < B; ++b) sum = std::fma(a[b], theta[b][i], sum);
    w[i] = sum;
  }
}

/// The elements that one step of a sum takes, one a lane.
template <class T>
constexpr int kLanes = 64 / sizeof(T);

/// theta_grad[i] += Σ_b a[b] · g[b][i], b ascending; dots[b] = Σ_i theta[i] · g[b][i].
template <class T, int B>
[[gnu::always_inline]] inline void add_scaled(std::int64_t n, const T* theta, const T* a, const T* const* g,
                                              T* theta_grad, T* dots) {
  constexpr int L = kLanes<T>;
  typedef T Lanes __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
  Lanes sums[B] = {};
  const auto step = [&](const Lanes& t, const Lanes* x, Lanes& d) {
    for (int b = 0; b < B; ++b)
      for (int l = 0; l < L; ++l) {
        sums[b][l] = std::fma(t[l], x[b][l], sums[b][l]);
        d[l] = std::fma(a[b], x[b][l], d[l]);
      }
  };
  std::int64_t i = 0;
  for (; i + L <= n; i += L) {
    Lanes x[B];
    for (int b = 0; b < B; ++b) x[b] = *reinterpret_cast<const Lanes*>(g[b] + i);
    Lanes d = *reinterpret_cast<const Lanes*>(theta_grad + i);
    step(*reinterpret_cast<const Lanes*>(theta + i), x, d);
    *reinterpret_cast<Lanes*>(theta_grad + i) = d;
  }
  if (i < n) {  // the rest, filled up with zeros
    const std::size_t bytes = static_cast<std::size_t>(n - i) * sizeof(T);
    Lanes t{}, x[B] = {}, d{};
    std::memcpy(&t, theta + i, bytes);
    std::memcpy(&d, theta_grad + i, bytes);
    for (int b = 0; b < B; ++b) std::memcpy(&x[b], g[b] + i, bytes);
    step(t, x, d);
    std::memcpy(theta_grad + i, &d, bytes);
  }
  for (int b = 0; b < B; ++b) {
    for (int half = L / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) sums[b][l] += sums[b][l + half];
    dots[b] = sums[b][0];
  }
}

/// Rows of `row` elements (the last may be shorter), all under the same coefficients c (row).
/// theta_grad[i] += c[i mod row] · g[i]; sums[j] = Σ over i ≡ j mod row of theta[i] · g[i].
template <class T>
[[gnu::always_inline]] inline void add_masked(std::int64_t n, std::int64_t row, const T* theta, const T* c,
                                              const T* g, T* theta_grad, T* sums) {
  std::memset(sums, 0, static_cast<std::size_t>(row) * sizeof(T));
  for (std::int64_t at = 0; at < n; at += row) {
    const std::int64_t length = at + row < n ? row : n - at;
    const T *t = theta + at, *x = g + at;
    T* d = theta_grad + at;
#pragma omp simd
    for (std::int64_t j = 0; j < length; ++j) {
      d[j] = std::fma(c[j], x[j], d[j]);
      sums[j] = std::fma(t[j], x[j], sums[j]);
    }
  }
}

/// to[i] = from[i] past the caches where the processor can, for results too large to be found there again.
template <class T>
[[gnu::always_inline]] inline void stream_copy(std::int64_t n, const T* from, T* to) {
  typedef float Line __attribute__((vector_size(32)));
  constexpr std::int64_t L = sizeof(Line) / sizeof(T);
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(T); };
  const auto past =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % sizeof(Line) / sizeof(T));
  std::int64_t i = past == 0 ? 0 : L - past < n ? L - past : n;
  std::memcpy(to, from, bytes(i));
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
  std::memcpy(to + i, from + i, bytes(n - i));
}

}  // namespace ssn::kernels
