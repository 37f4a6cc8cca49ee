#include "kernels/generate.h"

#include <atomic>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/generate_loops.h"
#include "kernels/cpu/generate_part.h"
#include "kernels/generate_terms.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

constexpr std::int64_t kStretch = 4096;     // elements of theta that one partial sum covers; fixes the bits
constexpr std::int64_t kChunk = 4096;       // elements of a weight that are made at once, at most
constexpr std::int64_t kNear = 512 << 10;   // bytes that a core finds in a cache of its own
constexpr std::int64_t kCached = 16 << 20;  // bytes of weights that a later reader finds in the caches

template <class T>
using Layers = std::span<const GeneratedLayer<T>>;

// ---- forward

/// w[i] = gain · Σ_k alpha[k] · theta[offsets[k] + i] for i of [begin, begin + n)
template <class T>
void combine_templates(const GeneratedLayer<T>& l, const T* theta, std::int64_t begin, std::int64_t n, T* w) {
  for (int k = 0; k < l.templates; k += kBatch) {
    const T* from[kBatch] = {};
    T a[kBatch];
    const int count = std::min(kBatch, l.templates - k);
    for (int b = 0; b < count; ++b) {
      from[b] = theta + l.offsets[k + b] + begin;
      a[b] = l.gain * l.coefficients[k + b];
    }
    combine(count, k > 0, n, a, from, w);
  }
}

/// w[i] = gain · theta[i]
template <class T>
void copy_scaled(std::int64_t n, T gain, const T* theta, T* w) {
  if (gain == T(1))
    std::copy(theta, theta + n, w);
  else
    std::transform(theta, theta + n, w, [gain](T x) { return gain * x; });
}

/// Elements [begin, begin + n) of a tiled weight.
template <class T>
void mask_tiles(const GeneratedLayer<T>& l, std::int64_t group_size, const T* theta, std::int64_t begin,
                std::int64_t n, T* w) {
  T c[kChunk];
  const std::int64_t length = tile_of(l, group_size);
  while (n > 0) {
    const std::int64_t tile = begin / length, p = begin % length, size = std::min(n, length - p);
    if (tile == 0 || !l.coefficients) {
      copy_scaled(size, l.gain, theta + p, w);
    } else {
      const std::int64_t row = std::min(mask_row(l.window), size);
      fill_mask_row(l.coefficients + (tile - 1) * l.window, l.window, p % l.window, row, c);
      if (l.gain != T(1)) std::for_each(c, c + row, [&](T& x) { x *= l.gain; });
      multiply_rows(size, row, c, theta + p, w);
    }
    begin += size, w += size, n -= size;
  }
}

/// w[i] of elements [begin, begin + n) of a layer's weight, to their places in its format.
template <class T, class Out>
void write_in_format(const GeneratedLayer<T>& l, std::int64_t begin, std::int64_t n, const T* w) {
  auto* const to = static_cast<Out*>(l.weight);
  if (!l.is_reordered()) {
    for (std::int64_t i = 0; i < n; ++i) store(to[begin + i], w[i]);
    return;
  }
  std::int64_t channel = begin / l.taps, tap = begin % l.taps;  // channels counted over all filters
  for (std::int64_t i = 0; i < n; ++i) {
    store(to[(channel / l.channels * l.taps + tap) * l.channels + channel % l.channels], w[i]);
    if (++tap == l.taps) tap = 0, ++channel;
  }
}

/// Elements [begin, end) of a layer's weight, at most kChunk.
template <class T>
void write_chunk(const GeneratedLayer<T>& l, std::int64_t group_size, const T* theta, std::int64_t begin,
                 std::int64_t end, bool stream) {
  alignas(64) T buffer[kChunk];
  const bool formatted = l.half || l.is_reordered();
  T* w = stream || formatted ? buffer : static_cast<T*>(l.weight) + begin;
  const std::int64_t n = end - begin;
  generate_part(l, group_size, theta, begin, n, w);
  if (l.half) {
    if constexpr (std::is_same_v<T, float>) write_in_format<T, bf16>(l, begin, n, buffer);
  } else if (formatted) {
    write_in_format<T, T>(l, begin, n, buffer);
  } else if (stream) {
    stream_copy(n, buffer, static_cast<T*>(l.weight) + begin);
  }
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

/// Behind the partial sums: the gradients that are not in theta's order, brought into it.
template <class T>
GenerateWorkspace workspace_of(Layers<T> layers, std::int64_t group_size) {
  const TermCounts c = count_terms(layers, group_size, kStretch);
  const std::int64_t starts = ceil_div(group_size, kStretch) + 2;
  std::int64_t reordered = 0;
  for (const auto& l : layers) reordered += l.is_reordered() ? l.n : 0;
  return {c.partials + reordered,
          c.terms * static_cast<std::int64_t>(sizeof(Term<T>)) + starts * 8 + c.meetings * 4};
}

/// The layers with gradients in theta's order, for which `space` has room.
template <class T>
std::vector<GeneratedLayer<T>> in_thetas_order(CpuQueue& q, Layers<T> layers, T* space) {
  std::vector<GeneratedLayer<T>> all(layers.begin(), layers.end());
  for (GeneratedLayer<T>& l : all) {
    if (!l.is_reordered()) continue;
    from_channels_last(q, l.n / (l.channels * l.taps), l.channels, l.taps, l.weight_grad, space);
    l.weight_grad = std::exchange(space, space + l.n);
  }
  return all;
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

/// Pieces that one pass takes together: the same part of the stretch, and periods of the same kind.
template <class T>
struct Batch {
  int count = 0;
  const T* g[kBatch] = {};
  const Term<T>* terms[kBatch] = {};
  T* partials[kBatch] = {};

  void add(const Piece<T>& p) {
    g[count] = p.weight_grad();
    partials[count] = p.partials;
    terms[count++] = &p.term;
  }
};

/// Pieces with one coefficient each (or none: 1).
template <class T>
void add_scaled_batch(const Batch<T>& batch, std::int64_t n, const T* theta, T* theta_grad) {
  T a[kBatch] = {}, dots[kBatch];
  for (int b = 0; b < batch.count; ++b) {
    const Term<T>& t = *batch.terms[b];
    a[b] = t.gain * (t.period ? *t.coefficients : T(1));
  }
  add_scaled(batch.count, n, theta, a, batch.g, theta_grad, dots);
  for (int b = 0; b < batch.count; ++b)
    if (batch.terms[b]->period) *batch.partials[b] = dots[b];
}

/// Pieces under masks of one window. Partial sums are by the place in the window, counted from the piece's
/// start.
template <class T>
void add_masked_batch(const Batch<T>& batch, std::int64_t n, std::int64_t window, std::int64_t phase,
                      const T* theta, T* theta_grad) {
  constexpr std::int64_t kSize = std::max(kStretch, kBatch * kRowStride);
  T c[kSize], sums[kSize];
  const std::int64_t row = mask_row(window), filled = window < kShortWindow ? row : std::min(row, n);
  for (int b = 0; b < batch.count; ++b) {
    T* const own = c + b * kRowStride;
    fill_mask_row(batch.terms[b]->coefficients, window, phase, filled, own);
    const T gain = batch.terms[b]->gain;
    if (gain != T(1)) std::for_each(own, own + filled, [gain](T& x) { x *= gain; });
    std::fill_n(sums + b * kRowStride, filled, T(0));
  }
  add_masked(batch.count, n, row, theta, c, batch.g, theta_grad, sums);
  for (int b = 0; b < batch.count; ++b) {
    if (window < kShortWindow) fold_row(window, sums + b * kRowStride);
    std::copy_n(sums + b * kRowStride, std::min(window, n), batch.partials[b]);
  }
}

template <class T>
void add_stretch(const Meetings<T>& m, std::int64_t stretch, const T* theta, T* theta_grad, T* workspace) {
  const std::int32_t *met = m.met + m.start[stretch], *end = m.met + m.start[stretch + 1];
  while (met < end) {
    const Piece<T> head(m.terms[*met], stretch, workspace);
    const std::int64_t n = head.end - head.begin, period = head.term.period;
    const int most = period < kShortWindow ? kBatch : 1;
    Batch<T> batch;
    for (; met < end && batch.count < most; ++met) {
      const Piece<T> p(m.terms[*met], stretch, workspace);
      const bool alike = period > 1 ? p.term.period == period : p.term.period <= 1;
      if (p.begin != head.begin || p.end != head.end || !alike) break;
      batch.add(p);
    }
    if (period > 1)
      add_masked_batch(batch, n, period, head.phase(), theta + head.begin, theta_grad + head.begin);
    else
      add_scaled_batch(batch, n, theta + head.begin, theta_grad + head.begin);
  }
}

/// coefficients_grad[j] += gain times the partial sums of a term, stretches ascending.
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
      t.coefficients_grad[j] += static_cast<T>(static_cast<double>(t.gain) * sum);
    }
  });
}

}  // namespace

template <class T>
void generate_part(const GeneratedLayer<T>& l, std::int64_t group_size, const T* theta, std::int64_t begin,
                   std::int64_t n, T* w) {
  using Method = typename GeneratedLayer<T>::Method;
  if (l.method == Method::templates)
    combine_templates(l, theta, begin, n, w);
  else if (l.method == Method::tiles)
    mask_tiles(l, group_size, theta, begin, n, w);
  else
    copy_scaled(n, l.gain, theta + l.offsets[0] + begin, w);
}

template <class T>
GenerateWorkspace generate_workspace(CpuQueue&, Layers<T> layers, std::int64_t group_size) {
  return workspace_of(layers, group_size);
}

template <class T>
void generate_forward(CpuQueue&, Layers<T> layers, std::int64_t group_size, const T* theta, void*) {
  std::int64_t bytes = 0, places = 0, period = common_period(layers, group_size, kChunk), chunk = kChunk;
  if (period == 0) {
    period = kChunk;
  } else {  // one round over theta, a chunk each, should stay near
    const std::int64_t fits = kNear / (ceil_div(group_size, period) * static_cast<std::int64_t>(sizeof(T)));
    chunk = std::clamp<std::int64_t>(fits / 1024 * 1024, 1024, kChunk);
  }
  for (const auto& l : layers) {
    bytes += l.n * static_cast<std::int64_t>(sizeof(T));
    places += ceil_div(l.n, period);
  }
  const bool stream = bytes > kCached;
  const auto rounds = [&](std::size_t layer) { return ceil_div(layers[layer].n, period); };
  // The order: chunks by their place in the period, then by layer, then by round.
  parallel_for(places * ceil_div(period, chunk), 1, [&](std::int64_t first, std::int64_t last) {
    std::int64_t at = first / places * chunk, round = first % places;
    std::size_t layer = 0;
    while (round >= rounds(layer)) round -= rounds(layer++);
    for (std::int64_t place = first; place < last; ++place, ++round) {
      while (round == rounds(layer)) {
        round = 0;
        if (++layer == layers.size()) layer = 0, at += chunk;
      }
      const GeneratedLayer<T>& l = layers[layer];
      const std::int64_t begin = round * period + at;
      const std::int64_t end = std::min({begin + chunk, (round + 1) * period, l.n});
      if (begin < end) write_chunk(l, group_size, theta, begin, end, stream);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // streamed stores are ordered by nothing else
  });
}

template <class T>
void generate_backward(CpuQueue& q, Layers<T> given, std::int64_t group_size, const T* theta, T* theta_grad,
                       T* workspace, void* plain) {
  const std::vector<GeneratedLayer<T>> in_order =
      in_thetas_order(q, given, workspace + count_terms(given, group_size, kStretch).partials);
  const Layers<T> layers(in_order);
  const Meetings<T> m = find_meetings(layers, group_size, plain);
  std::int64_t period = common_period(layers, group_size, kStretch), run = kStretch;
  if (period == 0) {
    period = std::max<std::int64_t>(group_size, 1);
  } else if (period <
             group_size) {  // jumps cost, but gradients read in one round should stay near to the next
    const std::int64_t fits =
        4 * kNear / (ceil_div(group_size, period) * static_cast<std::int64_t>(sizeof(T)));
    run = std::clamp<std::int64_t>(fits / kStretch, 2, 8) * kStretch;
  }
  const StretchOrder order{group_size, period, run};
  parallel_for(order.size(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t place = begin; place < end; ++place) {
      const std::int64_t first = order.at(place) * run;
      if (first < 0) continue;
      for (std::int64_t at = first; at < std::min(first + run, group_size); at += kStretch)
        add_stretch(m, at / kStretch, theta, theta_grad, workspace);
    }
  });
  for (std::int64_t i = 0; i < m.count; ++i)
    if (m.terms[i].coefficients_grad) sum_partials(m.terms[i], workspace);
}

template GenerateWorkspace generate_workspace(CpuQueue&, Layers<float>, std::int64_t);
template GenerateWorkspace generate_workspace(CpuQueue&, Layers<double>, std::int64_t);
template void generate_part(const GeneratedLayer<float>&, std::int64_t, const float*, std::int64_t,
                            std::int64_t, float*);
template void generate_part(const GeneratedLayer<double>&, std::int64_t, const double*, std::int64_t,
                            std::int64_t, double*);
template void generate_forward(CpuQueue&, Layers<float>, std::int64_t, const float*, void*);
template void generate_forward(CpuQueue&, Layers<double>, std::int64_t, const double*, void*);
template void generate_backward(CpuQueue&, Layers<float>, std::int64_t, const float*, float*, float*, void*);
template void generate_backward(CpuQueue&, Layers<double>, std::int64_t, const double*, double*, double*,
                                void*);

}  // namespace ssn::kernels
