#include "kernels/generate.h"

#include <atomic>

#include "kernels/cpu/generate_loops.h"
#include "kernels/generate_terms.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

constexpr std::int64_t kStretch = 2048;     // elements of theta that one partial sum covers; fixes the bits
constexpr std::int64_t kChunk = 4096;       // elements of a weight that are made at once
constexpr std::int64_t kCached = 16 << 20;  // bytes of weights that a later reader finds in the caches
constexpr int kBatch = 4;                   // terms that are worked on at once
constexpr std::int64_t kShortWindow = 32;   // windows below are repeated, so that rows fill vectors

template <class T>
using Layers = std::span<const GeneratedLayer<T>>;

/// f<count>() for a count of 1 to kBatch
template <class F>
void unrolled(int count, F&& f) {
  if (count == 1) f.template operator()<1>();
  if (count == 2) f.template operator()<2>();
  if (count == 3) f.template operator()<3>();
  if (count == 4) f.template operator()<4>();
}

// ---- forward

/// w[i] = Σ_k alpha[k] · theta[offsets[k] + i] for i of [begin, begin + n)
template <class T>
void combine_templates(const GeneratedLayer<T>& l, const T* theta, std::int64_t begin, std::int64_t n, T* w) {
  for (int k = 0; k < l.templates; k += kBatch) {
    const T* from[kBatch] = {};
    const int count = std::min(kBatch, l.templates - k);
    for (int b = 0; b < count; ++b) from[b] = theta + l.offsets[k + b] + begin;
    const T* a = l.coefficients + k;
    unrolled(count,
             [&]<int B>() { k ? combine<T, B, true>(n, a, from, w) : combine<T, B, false>(n, a, from, w); });
  }
}

/// c[j] = mask[(phase + j) mod window] for j < n
template <class T>
void repeat_mask(const T* mask, std::int64_t window, std::int64_t phase, std::int64_t n, T* c) {
  std::int64_t m = phase;
  for (std::int64_t j = 0; j < n; ++j) {
    c[j] = mask[m];
    if (++m == window) m = 0;
  }
}
/// Elements of a row of repeated masks, at most kStretch or one window.
constexpr std::int64_t row_of(std::int64_t window) {
  return window < kShortWindow ? 16 * window : window;
}

/// Elements [begin, begin + n) of a tiled weight.
template <class T>
void mask_tiles(const GeneratedLayer<T>& l, std::int64_t group_size, const T* theta, std::int64_t begin,
                std::int64_t n, T* w) {
  T c[kChunk];
  while (n > 0) {
    const std::int64_t tile = begin / group_size, p = begin % group_size, size = std::min(n, group_size - p);
    const T* from = theta + p;
    if (tile == 0) {
      std::copy(from, from + size, w);
    } else {
      const std::int64_t row = std::min(row_of(l.window), size);
      repeat_mask(l.coefficients + (tile - 1) * l.window, l.window, p % l.window, row, c);
      for (std::int64_t at = 0; at < size; at += row) {
        const std::int64_t length = std::min(row, size - at);
#pragma omp simd
        for (std::int64_t j = 0; j < length; ++j) w[at + j] = c[j] * from[at + j];
      }
    }
    begin += size, w += size, n -= size;
  }
}

/// Elements [begin, end) of a layer's weight, at most kChunk.
template <class T>
void write_chunk(const GeneratedLayer<T>& l, std::int64_t group_size, const T* theta, std::int64_t begin,
                 std::int64_t end, bool stream) {
  using Method = typename GeneratedLayer<T>::Method;
  alignas(64) T buffer[kChunk];
  T* w = stream ? buffer : l.weight + begin;
  const std::int64_t n = end - begin;
  if (l.method == Method::templates)
    combine_templates(l, theta, begin, n, w);
  else if (l.method == Method::tiles)
    mask_tiles(l, group_size, theta, begin, n, w);
  else
    std::copy(theta + l.offsets[0] + begin, theta + l.offsets[0] + end, w);
  if (stream) stream_copy(n, buffer, l.weight + begin);
}

// ---- backward

/// What the backward pass builds in the plain workspace: the terms, and for each stretch those it meets.
template <class T>
struct Meetings {
  Term<T>* terms;
  std::int64_t* start;  // (stretches + 1), into `met`
  std::int32_t* met;    // numbers of terms, ascending within a stretch
  std::int64_t count;   // of terms
};

template <class T>
GenerateWorkspace workspace_of(Layers<T> layers, std::int64_t group_size) {
  const TermCounts c = count_terms(layers, group_size, kStretch);
  const std::int64_t starts = ceil_div(group_size, kStretch) + 2;
  return {c.partials, c.terms * static_cast<std::int64_t>(sizeof(Term<T>)) + starts * 8 + c.meetings * 4};
}

template <class T>
Meetings<T> find_meetings(Layers<T> layers, std::int64_t group_size, void* plain) {
  const std::int64_t stretches = ceil_div(group_size, kStretch);
  Meetings<T> m{static_cast<Term<T>*>(plain), nullptr, nullptr, 0};
  for_each_term(layers, group_size, kStretch, [&](const Term<T>& t) { m.terms[m.count++] = t; });
  // Counting sort. start[s + 2] counts; summed up, start[s + 1] is where the next meeting of s is put, so
  // that at the end it is where those of s + 1 start.
  m.start = reinterpret_cast<std::int64_t*>(m.terms + m.count);
  m.met = reinterpret_cast<std::int32_t*>(m.start + stretches + 2);
  std::fill(m.start, m.start + stretches + 2, 0);
  const auto each = [&](auto&& f) {
    for (std::int64_t i = 0; i < m.count; ++i) {
      const std::int64_t s = m.terms[i].first_stretch(kStretch), n = m.terms[i].stretches(kStretch);
      for (std::int64_t j = s; j < s + n; ++j) f(j, static_cast<std::int32_t>(i));
    }
  };
  each([&](std::int64_t s, std::int32_t) { ++m.start[s + 2]; });
  for (std::int64_t s = 0; s < stretches; ++s) m.start[s + 2] += m.start[s + 1];
  each([&](std::int64_t s, std::int32_t i) { m.met[m.start[s + 1]++] = i; });
  return m;
}

/// The part of a term that lies in a stretch, and the place of its partial sums.
template <class T>
struct Piece {
  const Term<T>& term;
  std::int64_t begin, end;
  T* partials;

  Piece(const Term<T>& t, std::int64_t stretch, T* workspace)
      : term(t),
        begin(std::max(t.first, stretch * kStretch)),
        end(std::min(t.end(), (stretch + 1) * kStretch)),
        partials(workspace + t.partials + (stretch - t.first_stretch(kStretch)) * t.width(kStretch)) {}
  const T* weight_grad() const { return term.weight_grad + (begin - term.first); }
  /// Place in the period of the piece's first element.
  std::int64_t phase() const { return (begin - term.first) % term.period; }
};

/// The next terms of [met, end) that cover the same part of the stretch under one coefficient each, at most
/// kBatch; returns how many.
template <class T>
int add_batch(const Meetings<T>& m, const std::int32_t* met, const std::int32_t* end, std::int64_t stretch,
              const T* theta, T* theta_grad, T* workspace) {
  const Piece<T> head(m.terms[*met], stretch, workspace);
  const T* g[kBatch] = {};
  T a[kBatch] = {}, dots[kBatch];
  int count = 0;
  for (; count < kBatch && met + count < end; ++count) {
    const Piece<T> p(m.terms[met[count]], stretch, workspace);
    if (p.term.period > 1 || p.begin != head.begin || p.end != head.end) break;
    g[count] = p.weight_grad();
    a[count] = p.term.period ? p.term.coefficients[0] : T(1);
  }
  unrolled(count, [&]<int B>() {
    add_scaled<T, B>(head.end - head.begin, theta + head.begin, a, g, theta_grad + head.begin, dots);
  });
  for (int b = 0; b < count; ++b) {
    const Term<T>& t = m.terms[met[b]];
    if (t.period) *Piece<T>(t, stretch, workspace).partials = dots[b];
  }
  return count;
}

/// A piece under a mask: its partial sums are by the place in the window, counted from the piece's start.
template <class T>
void add_mask(const Piece<T>& p, const T* theta, T* theta_grad) {
  const std::int64_t n = p.end - p.begin, window = p.term.period, row = std::min(row_of(window), n);
  T c[kStretch], sums[kStretch];
  repeat_mask(p.term.coefficients, window, p.phase(), row, c);
  add_masked(n, row, theta + p.begin, c, p.weight_grad(), theta_grad + p.begin, sums);
  for (std::int64_t j = 0; j < std::min(window, row); ++j) {
    T sum = sums[j];
    for (std::int64_t i = j + window; i < row; i += window) sum += sums[i];
    p.partials[j] = sum;
  }
}

template <class T>
void add_stretch(const Meetings<T>& m, std::int64_t stretch, const T* theta, T* theta_grad, T* workspace) {
  const std::int32_t *met = m.met + m.start[stretch], *end = m.met + m.start[stretch + 1];
  while (met < end) {
    const Term<T>& t = m.terms[*met];
    if (t.period > 1) {
      add_mask(Piece<T>(t, stretch, workspace), theta, theta_grad);
      ++met;
    } else {
      met += add_batch(m, met, end, stretch, theta, theta_grad, workspace);
    }
  }
}

/// coefficients_grad[j] += the partial sums of a term, stretches ascending.
template <class T>
void sum_partials(const Term<T>& t, T* workspace) {
  const std::int64_t first = t.first_stretch(kStretch), last = first + t.stretches(kStretch);
  parallel_for(t.period, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      double sum = 0;
      for (std::int64_t s = first; s < last; ++s) {
        const Piece<T> p(t, s, workspace);
        const std::int64_t at = t.period == 1 ? 0 : (j + t.period - p.phase()) % t.period;
        if (at < p.end - p.begin) sum += static_cast<double>(p.partials[at]);
      }
      t.coefficients_grad[j] += static_cast<T>(sum);
    }
  });
}

}  // namespace

template <class T>
GenerateWorkspace generate_workspace(CpuQueue&, Layers<T> layers, std::int64_t group_size) {
  return workspace_of(layers, group_size);
}

template <class T>
void generate_forward(CpuQueue&, Layers<T> layers, std::int64_t group_size, const T* theta, void*) {
  std::int64_t bytes = 0, places = 0, period = common_period(layers, group_size, kChunk);
  if (period == 0) period = kChunk;
  for (const auto& l : layers)
    bytes += l.n * static_cast<std::int64_t>(sizeof(T)), places += ceil_div(l.n, period);
  const bool stream = bytes > kCached;
  const auto rounds = [&](std::size_t layer) { return ceil_div(layers[layer].n, period); };
  // The order: chunks by their place in the period, then by layer, then by round.
  parallel_for(places * ceil_div(period, kChunk), 1, [&](std::int64_t first, std::int64_t last) {
    std::int64_t at = first / places * kChunk, round = first % places;
    std::size_t layer = 0;
    while (round >= rounds(layer)) round -= rounds(layer++);
    for (std::int64_t place = first; place < last; ++place, ++round) {
      while (round == rounds(layer)) {
        round = 0;
        if (++layer == layers.size()) layer = 0, at += kChunk;
      }
      const GeneratedLayer<T>& l = layers[layer];
      const std::int64_t begin = round * period + at;
      const std::int64_t end = std::min({begin + kChunk, (round + 1) * period, l.n});
      if (begin < end) write_chunk(l, group_size, theta, begin, end, stream);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // streamed stores are ordered by nothing else
  });
}

template <class T>
void generate_backward(CpuQueue&, Layers<T> layers, std::int64_t group_size, const T* theta, T* theta_grad,
                       T* workspace, void* plain) {
  const Meetings<T> m = find_meetings(layers, group_size, plain);
  const std::int64_t period = common_period(layers, group_size, kStretch);
  const StretchOrder order{group_size, period ? period : std::max<std::int64_t>(group_size, 1), kStretch};
  parallel_for(order.size(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t place = begin; place < end; ++place) {
      const std::int64_t stretch = order.at(place);
      if (stretch >= 0) add_stretch(m, stretch, theta, theta_grad, workspace);
    }
  });
  for (std::int64_t i = 0; i < m.count; ++i)
    if (m.terms[i].coefficients_grad) sum_partials(m.terms[i], workspace);
}

template GenerateWorkspace generate_workspace(CpuQueue&, Layers<float>, std::int64_t);
template GenerateWorkspace generate_workspace(CpuQueue&, Layers<double>, std::int64_t);
template void generate_forward(CpuQueue&, Layers<float>, std::int64_t, const float*, void*);
template void generate_forward(CpuQueue&, Layers<double>, std::int64_t, const double*, void*);
template void generate_backward(CpuQueue&, Layers<float>, std::int64_t, const float*, float*, float*, void*);
template void generate_backward(CpuQueue&, Layers<double>, std::int64_t, const double*, double*, double*,
                                void*);

}  // namespace ssn::kernels
