#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/gemm.h"
#include "kernels/functors.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

constexpr std::int64_t kBlock = 128;  // queries at a time

std::int64_t blocks_of(const AttentionShape& s) {
  return std::min(kBlock, s.queries);
}
/// Two blocks of scores, and a row. Of bf16 also what a task reads and writes, in f32: four matrices of
/// keys and three blocks of queries.
template <class T>
std::int64_t task_workspace(const AttentionShape& s) {
  const std::int64_t copies = std::is_same_v<T, bf16> ? (4 * s.keys + 3 * blocks_of(s)) * s.width : 0;
  return (2 * blocks_of(s) + 1) * s.keys + copies;
}
std::int64_t task_count(const AttentionShape& s) {
  return s.samples * s.heads;
}
std::int64_t part_count(const AttentionShape& s) {
  return std::min<std::int64_t>(num_threads(), task_count(s));
}

/// What one task, a head of a sample, reads and writes. A pointer is to its first element; the rows of
/// matrices of inputs and outputs are `stride` elements apart.
struct Task {
  std::int64_t sample, head, keys, stride;
  std::int64_t query_at, key_at;  // first element of a matrix with the sample's queries, and keys

  Task(const AttentionShape& s, std::int64_t number, const std::int32_t* lengths)
      : sample(number / s.heads),
        head(number % s.heads),
        keys(lengths[sample]),
        stride(s.columns()),
        query_at(sample * s.queries * stride + head * s.width),
        key_at(sample * s.keys * stride + head * s.width) {}
};

/// f(task, its workspace) for all, in parallel.
template <class T, class F>
void for_tasks(const AttentionShape& s, const std::int32_t* lengths, Wider<T>* workspace, F&& f) {
  const std::int64_t tasks = task_count(s), parts = part_count(s);
  parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p)
      for (std::int64_t i = tasks * p / parts; i < tasks * (p + 1) / parts; ++i)
        f(Task(s, i, lengths), workspace + p * task_workspace<T>(s));
  });
}

/// to = from, matrices whose rows are apart.
template <class From, class To>
SSN_CLONES void copy_rows(std::int64_t rows, std::int64_t width, const From* from, std::int64_t from_stride,
                          To* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) store(to[i * to_stride + c], from[i * from_stride + c]);
  }
}

/// A matrix that a task computes with: rows of an input or an output themselves or, of bf16, their copy in
/// f32.
template <class T>
struct Operand {
  using W = Wider<T>;
  static constexpr bool kCopied = !std::is_same_v<T, W>;
  std::int64_t width, outer;  // of a row here, and between the rows outside
  W* copy;                    // of them, if kCopied

  std::int64_t stride() const { return kCopied ? width : outer; }
  const W* read(std::int64_t rows, const T* from) const {
    if constexpr (kCopied) {
      copy_rows(rows, width, from, outer, copy, width);
      return copy;
    } else {
      return from;
    }
  }
  /// Where to compute what written() then brings to `to`.
  W* place(T* to) const {
    if constexpr (kCopied)
      return copy;
    else
      return to;
  }
  void written(std::int64_t rows, T* to) const {
    if constexpr (kCopied) copy_rows(rows, width, copy, width, to, outer);
  }
};

/// The workspace of a task, laid out.
template <class T>
struct Operands {
  Wider<T>*gradients, *row;           // behind the scores; the row
  Operand<T> k, v, gk, gv, q, y, gq;  // y or its gradient

  Operands(const AttentionShape& s, Wider<T>* workspace)
      : gradients(workspace + blocks_of(s) * s.keys), row(gradients + blocks_of(s) * s.keys) {
    Wider<T>* next = row + s.keys;
    const auto lay = [&](std::int64_t count, auto&... operands) {
      ((operands = {s.width, s.columns(), next}, next += Operand<T>::kCopied ? count * s.width : 0), ...);
    };
    lay(s.keys, k, v, gk, gv);
    lay(blocks_of(s), q, y, gq);
  }
};

/// The factors m[i,·] of a row.
template <class T>
SSN_CLONES void draw_row(std::uint64_t seed, std::uint64_t stream, std::uint64_t row, std::uint32_t threshold,
                         T kept, std::int64_t keys, T* m) {
  const std::int64_t whole = keys / 4;
#pragma omp simd
  for (std::int64_t j = 0; j < whole; ++j) {
    const PhiloxDraw d = philox(seed, stream, row + static_cast<std::uint64_t>(j));
    for (int i = 0; i < 4; ++i) m[4 * j + i] = kept_if(d.v[i] >= threshold, kept);
  }
  if (keys % 4 == 0) return;
  const PhiloxDraw d = philox(seed, stream, row + static_cast<std::uint64_t>(whole));
  for (std::int64_t j = 4 * whole; j < keys; ++j) m[j] = kept_if(d.v[j % 4] >= threshold, kept);
}
template <class T>
void draw_row(const AttentionShape& s, const AttentionDropout& dropout, const Task& task, std::int64_t query,
              T* m) {
  const auto head = static_cast<std::uint64_t>((dropout.first + task.sample) * s.heads + task.head);
  draw_row(dropout.random.seed(), dropout.random.stream(),
           head << 32 | static_cast<std::uint64_t>(query) << 16,
           static_cast<std::uint32_t>(std::ldexp(dropout.rate, 32)), static_cast<T>(1 / (1 - dropout.rate)),
           task.keys, m);
}

/// s becomes its softmax, of s · scale; its log Σ exp.
template <class T>
SSN_CLONES void softmax_row(std::int64_t n, T scale, T* s, T* log_sum) {
  T most = s[0], sum = 0;
#pragma omp simd reduction(max : most)
  for (std::int64_t j = 0; j < n; ++j) most = s[j] > most ? s[j] : most;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < n; ++j) {
    s[j] = exp_below_0((s[j] - most) * scale);
    sum += s[j];
  }
  const T share = 1 / sum;
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) s[j] *= share;
  *log_sum = most * scale + std::log(sum);
}

template <class T>
SSN_CLONES void multiply(std::int64_t n, const T* m, T* p) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) p[j] *= m[j];
}

/// Of a row of scores s and of gradients g of m p: s becomes m p, g the gradient of the scores; kDropped:
/// else m = 1. dot: Σ_j p m g.
template <bool kDropped, class T>
SSN_CLONES void gradient_row(std::int64_t n, T scale, T log_sum, T dot, const T* m, T* s, T* g) {
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) {
    // Rounding may take it to a little above 0, where exp_below_0 still holds; a bound would be a branch.
    const T probability = exp_below_0(std::fma(s[j], scale, -log_sum)), factor = kDropped ? m[j] : T(1);
    s[j] = probability * factor;
    g[j] = probability * (factor * g[j] - dot) * scale;
  }
}

/// Σ_c a[c] b[c]: of a row of y and of its gradient, what gradient_row needs, for y = Σ_j m p v.
template <class T>
SSN_CLONES Wider<T> dot(std::int64_t n, const T* a, const T* b) {
  Wider<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c)
    sum = std::fma(static_cast<Wider<T>>(a[c]), static_cast<Wider<T>>(b[c]), sum);
  return sum;
}

template <class T>
T scale_of(const AttentionShape& s) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(s.width)));
}

}  // namespace

template <class T>
std::int64_t attention_workspace(CpuQueue&, const AttentionShape& s) {
  return part_count(s) * task_workspace<T>(s);
}
template std::int64_t attention_workspace<bf16>(CpuQueue&, const AttentionShape&);
template std::int64_t attention_workspace<float>(CpuQueue&, const AttentionShape&);
template std::int64_t attention_workspace<double>(CpuQueue&, const AttentionShape&);

template <class T>
void attention_forward(CpuQueue&, const AttentionShape& s, const AttentionDropout& dropout, const T* q,
                       const T* k, const T* v, const std::int32_t* lengths, T* y, Wider<T>* log_sum,
                       Wider<T>* workspace) {
  using W = Wider<T>;
  for_tasks<T>(s, lengths, workspace, [&](const Task& t, W* scores) {
    const Operands<T> of(s, scores);
    W* const m = of.row;
    const W *const tk = of.k.read(t.keys, k + t.key_at), *const tv = of.v.read(t.keys, v + t.key_at);
    const std::int64_t stride = of.k.stride();
    for (std::int64_t first = 0; first < s.queries; first += kBlock) {
      const std::int64_t rows = std::min(kBlock, s.queries - first), at = t.query_at + first * t.stride;
      gemm<W>({false, true, rows, t.keys, s.width, stride, stride, t.keys}, of.q.read(rows, q + at), tk,
              scores, false);
      for (std::int64_t i = 0; i < rows; ++i) {
        W* const row = scores + i * t.keys;
        softmax_row(t.keys, scale_of<W>(s), row,
                    log_sum + (t.sample * s.heads + t.head) * s.queries + first + i);
        if (dropout.rate == 0) continue;
        draw_row(s, dropout, t, first + i, m);
        multiply<W>(t.keys, m, row);
      }
      gemm<W>({false, false, rows, s.width, t.keys, t.keys, stride, stride}, scores, tv, of.y.place(y + at),
              false);
      of.y.written(rows, y + at);
    }
  });
}

template <class T>
void attention_backward(CpuQueue&, const AttentionShape& s, const AttentionDropout& dropout, const T* q,
                        const T* k, const T* v, const std::int32_t* lengths, const T* y,
                        const Wider<T>* log_sum, const T* gy, T* gq, T* gk, T* gv, Wider<T>* workspace) {
  using W = Wider<T>;
  for_tasks<T>(s, lengths, workspace, [&](const Task& t, W* scores) {
    const Operands<T> of(s, scores);
    W *const gradients = of.gradients, *const m = dropout.rate > 0 ? of.row : nullptr;
    const W *const tk = of.k.read(t.keys, k + t.key_at), *const tv = of.v.read(t.keys, v + t.key_at);
    const std::int64_t stride = of.k.stride();
    for (std::int64_t first = 0; first < s.queries; first += kBlock) {
      const std::int64_t rows = std::min(kBlock, s.queries - first), at = t.query_at + first * t.stride;
      const W *const tq = of.q.read(rows, q + at), *const tgy = of.y.read(rows, gy + at);
      const GemmShape over_width{false, true, rows, t.keys, s.width, stride, stride, t.keys};
      gemm<W>(over_width, tq, tk, scores, false);
      gemm<W>(over_width, tgy, tv, gradients, false);
      for (std::int64_t i = 0; i < rows; ++i) {
        if (m) draw_row(s, dropout, t, first + i, m);
        const auto gradient = m ? gradient_row<true, W> : gradient_row<false, W>;
        gradient(t.keys, scale_of<W>(s), log_sum[(t.sample * s.heads + t.head) * s.queries + first + i],
                 dot(s.width, y + at + i * t.stride, gy + at + i * t.stride), m, scores + i * t.keys,
                 gradients + i * t.keys);
      }
      gemm<W>({false, false, rows, s.width, t.keys, t.keys, stride, stride}, gradients, tk,
              of.gq.place(gq + at), false);
      of.gq.written(rows, gq + at);
      const GemmShape over_rows{true, false, t.keys, s.width, rows, t.keys, stride, stride};
      gemm<W>(over_rows, gradients, tq, of.gk.place(gk + t.key_at), first > 0);
      gemm<W>(over_rows, scores, tgy, of.gv.place(gv + t.key_at), first > 0);
    }
    of.gk.written(t.keys, gk + t.key_at);
    of.gv.written(t.keys, gv + t.key_at);
    for (std::int64_t j = t.keys; j < s.keys; ++j) {
      std::fill_n(gk + t.key_at + j * t.stride, s.width, T(0));
      std::fill_n(gv + t.key_at + j * t.stride, s.width, T(0));
    }
  });
}

template void attention_forward<bf16>(CpuQueue&, const AttentionShape&, const AttentionDropout&, const bf16*,
                                      const bf16*, const bf16*, const std::int32_t*, bf16*, float*, float*);
template void attention_backward<bf16>(CpuQueue&, const AttentionShape&, const AttentionDropout&, const bf16*,
                                       const bf16*, const bf16*, const std::int32_t*, const bf16*,
                                       const float*, const bf16*, bf16*, bf16*, bf16*, float*);
template void attention_forward<float>(CpuQueue&, const AttentionShape&, const AttentionDropout&,
                                       const float*, const float*, const float*, const std::int32_t*, float*,
                                       float*, float*);
template void attention_backward<float>(CpuQueue&, const AttentionShape&, const AttentionDropout&,
                                        const float*, const float*, const float*, const std::int32_t*,
                                        const float*, const float*, const float*, float*, float*, float*,
                                        float*);
template void attention_forward<double>(CpuQueue&, const AttentionShape&, const AttentionDropout&,
                                        const double*, const double*, const double*, const std::int32_t*,
                                        double*, double*, double*);
template void attention_backward<double>(CpuQueue&, const AttentionShape&, const AttentionDropout&,
                                         const double*, const double*, const double*, const std::int32_t*,
                                         const double*, const double*, const double*, double*, double*,
                                         double*, double*);

}  // namespace ssn::kernels
