#include "kernels/generated_linear.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/generate_part.h"
#include "runtime/hd.h"
#include "runtime/parallel.h"

// A thread makes a panel of a few rows of the weight, cut where it no longer fits into the first-level cache,
// and multiplies it with all rows of x, which stay in the second-level cache.
namespace ssn::kernels {
namespace {

constexpr std::int64_t kPanel = 6;     // rows of the weight
constexpr std::int64_t kDepth = 1024;  // elements of each; fixes the bits
constexpr std::int64_t kRows = 64;     // of x
constexpr int kDots = 3;               // rows of a panel, with four of x, whose sums registers hold

/// sums[m · kPanel + r] += Σ_k x[m · stride + k] · w[r · kDepth + k] for k < n, m < M and r < R.
template <int M, int R, class W>
[[gnu::always_inline]] inline void add_dots(std::int64_t n, const W* x, std::int64_t stride, const W* w,
                                            W* sums) {
  constexpr int L = 32 / sizeof(W);
  typedef W Lanes __attribute__((vector_size(32), aligned(sizeof(W)), may_alias));
  Lanes lanes[M][R] = {};
  const std::int64_t whole = n / L * L;
  for (std::int64_t k = 0; k < whole; k += L)
    for (int m = 0; m < M; ++m)
      for (int r = 0; r < R; ++r)
        lanes[m][r] += *reinterpret_cast<const Lanes*>(x + m * stride + k) *
                       *reinterpret_cast<const Lanes*>(w + r * kDepth + k);
  for (int m = 0; m < M; ++m)
    for (int r = 0; r < R; ++r) {
      W sum[L];
      std::memcpy(sum, &lanes[m][r], sizeof sum);
      for (std::int64_t k = whole; k < n; ++k) sum[k - whole] += x[m * stride + k] * w[r * kDepth + k];
      for (int half = L / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) sum[l] += sum[l + half];
      sums[m * kPanel + r] += sum[0];
    }
}

/// The same for `rows` rows of x and a whole panel.
template <class W>
SSN_CLONES void add_panel(std::int64_t rows, std::int64_t n, const W* x, std::int64_t stride, const W* w,
                          W* sums) {
  static_assert(kPanel % kDots == 0);
  const std::int64_t whole = rows / 4 * 4;
  for (std::int64_t r = 0; r < kPanel; r += kDots)
    for (std::int64_t m = 0; m < whole; m += 4)
      add_dots<4, kDots>(n, x + m * stride, stride, w + r * kDepth, sums + m * kPanel + r);
  for (std::int64_t m = whole; m < rows; ++m)
    add_dots<1, kPanel>(n, x + m * stride, stride, w, sums + m * kPanel);
}

SSN_CLONES void round_to_half(std::int64_t n, float* w) {
  for (std::int64_t i = 0; i < n; ++i) w[i] = std::bit_cast<float>(std::uint32_t{bf16::rounded(w[i])} << 16);
}

/// Columns [first, first + kPanel) of y, those that exist, of `rows` rows of x.
template <class T>
void multiply_panel(const GeneratedLinear<T>& p, std::int64_t first, std::int64_t rows, const Wider<T>* x,
                    T* y) {
  using W = Wider<T>;
  alignas(64) W w[kPanel * kDepth], sums[kRows * kPanel];
  const std::int64_t count = std::min(kPanel, p.out - first);
  std::fill(w + count * kDepth, w + kPanel * kDepth, W(0));
  std::fill_n(sums, rows * kPanel, W(0));
  for (std::int64_t k = 0; k < p.in; k += kDepth) {
    const std::int64_t n = std::min(kDepth, p.in - k);
    for (std::int64_t r = 0; r < count; ++r) {
      W* const row = w + r * kDepth;
      generate_part(p.layer, p.group_size, p.theta, (first + r) * p.in + k, n, row);
      if constexpr (std::is_same_v<T, bf16>) round_to_half(n, row);
    }
    add_panel(rows, n, x + k, p.in, w, sums);
  }
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t r = 0; r < count; ++r)
      store(y[m * p.out + first + r], sums[m * kPanel + r] + (p.bias ? p.bias[first + r] : W(0)));
}

/// x in the type that sums have: itself, or a copy.
template <class T>
const Wider<T>* widened(const GeneratedLinear<T>& p, void* workspace) {
  if constexpr (std::is_same_v<T, Wider<T>>) {
    return p.x;
  } else {
    auto* const copy = static_cast<Wider<T>*>(workspace);
    parallel_for(p.rows * p.in, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      std::copy(p.x + begin, p.x + end, copy + begin);
    });
    return copy;
  }
}

}  // namespace

template <class T>
std::size_t generated_linear_workspace(CpuQueue&, std::int64_t rows, std::int64_t in, std::int64_t) {
  return std::is_same_v<T, Wider<T>> ? 0 : static_cast<std::size_t>(rows * in) * sizeof(Wider<T>);
}

template <class T>
void generated_linear(CpuQueue&, const GeneratedLinear<T>& p, void* workspace) {
  const Wider<T>* const x = widened(p, workspace);
  const std::int64_t panels = (p.out + kPanel - 1) / kPanel;
  const std::int64_t work = kPanel * (p.in + 1) * (p.layer.templates + std::min(p.rows, kRows));
  for (std::int64_t first = 0; first < p.rows; first += kRows) {
    const std::int64_t rows = std::min(kRows, p.rows - first);
    parallel_for(panels, 1 + 65536 / work, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t panel = begin; panel < end; ++panel)
        multiply_panel(p, panel * kPanel, rows, x + first * p.in, p.y + first * p.out);
    });
  }
}

template void generated_linear(CpuQueue&, const GeneratedLinear<bf16>&, void*);
template void generated_linear(CpuQueue&, const GeneratedLinear<float>&, void*);
template void generated_linear(CpuQueue&, const GeneratedLinear<double>&, void*);
template std::size_t generated_linear_workspace<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t);
template std::size_t generated_linear_workspace<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t);
template std::size_t generated_linear_workspace<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t);

}  // namespace ssn::kernels
