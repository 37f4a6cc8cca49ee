#include <vector>

#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/upload.cuh"
#include "kernels/generate_terms.h"
#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

template <class T>
using Layers = std::span<const GeneratedLayer<T>>;
template <class T>
using FullPack = Pack<T, kPack<T>>;

__device__ bool is_aligned16(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

/// A pack from any address; only the first `count` elements exist, the others are 0.
template <class T>
__device__ FullPack<T> load_pack(const T* from, std::int64_t count) {
  if (count >= kPack<T> && is_aligned16(from)) return FullPack<T>::load(from);
  FullPack<T> p;
#pragma unroll
  for (int c = 0; c < kPack<T>; ++c) p[c] = c < count ? from[c] : T(0);
  return p;
}
template <class T>
__device__ void store_pack(const FullPack<T>& p, T* to, std::int64_t count) {
  if (count >= kPack<T> && is_aligned16(to)) return p.store(to);
#pragma unroll
  for (int c = 0; c < kPack<T>; ++c)
    if (c < count) to[c] = p[c];
}

// ---- forward

/// Part of a weight that is one sum of terms: a layer of templates, an exact one, or one tile.
template <class T>
struct Target {
  T* weight;
  std::int64_t size, first_term, terms;
  std::int64_t first_place;  // in the order of chunks within one place of the period
};

template <class T>
constexpr std::int64_t kChunk = kThreads* kPack<T>;  // elements of a weight that a block makes

/// A block owns a chunk of one target, a thread one pack of it. Chunks are ordered by their place in the
/// period, then by target, then by round, `places` being targets times rounds.
template <class T>
__global__ void __launch_bounds__(kThreads)
    write_weights(std::int64_t period, std::int64_t places, std::int64_t targets, const Target<T>* target,
                  const Term<T>* terms, const T* theta) {
  const std::int64_t place = blockIdx.x % places, at = blockIdx.x / places * kChunk<T>;
  std::int64_t low = 0, high = targets;  // the last target that starts at or before the place
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (target[middle].first_place <= place ? low : high) = middle;
  }
  const Target<T> w = target[low];
  const std::int64_t round = (place - w.first_place) * period;
  const std::int64_t end = round + period < w.size ? round + period : w.size;
  const std::int64_t i = round + at + std::int64_t{threadIdx.x} * kPack<T>;
  if (i >= end) return;
  FullPack<T> sum = FullPack<T>::filled(0);
#pragma unroll 4
  for (std::int64_t k = 0; k < w.terms; ++k) {
    const Term<T> term = terms[w.first_term + k];
    const FullPack<T> x = load_pack(theta + term.first + i, end - i);
    T c = term.gain * (term.period ? term.coefficients[i % term.period] : T(1));
    std::int64_t m = term.period > 1 ? i % term.period : 0;
#pragma unroll
    for (int v = 0; v < kPack<T>; ++v) {
      sum[v] = k ? fma(c, x[v], sum[v]) : c * x[v];
      if (term.period > 1) {
        m = m + 1 == term.period ? 0 : m + 1;
        c = term.gain * term.coefficients[m];
      }
    }
  }
  store_pack(sum, w.weight + i, end - i);
}

// ---- backward

constexpr int kRows = 4;  // packs a lane

/// Elements of theta that one partial sum covers, and that a warp owns: 64 bytes a lane.
template <class T>
constexpr int kStretch = kWarp* kRows* kPack<T>;

/// A warp's stretch of theta and its gradient, in registers: row r of a lane is its pack of the r-th of kRows
/// runs.
template <class T>
struct Stretch {
  std::int64_t begin;
  int lane, size;
  FullPack<T> theta[kRows], grad[kRows];

  /// Place in the stretch of a row's first element.
  __device__ int place(int row) const { return (row * kWarp + lane) * kPack<T>; }
};

/// A term's part of a stretch, [low, high) counted from its begin.
template <class T>
struct Piece {
  int low, high;
  const T* weight_grad;  // of the stretch's begin; exists in [low, high) only

  __device__ Piece(const Stretch<T>& s, const Term<T>& t)
      : low(static_cast<int>(t.first > s.begin ? t.first - s.begin : 0)),
        high(static_cast<int>(t.end() < s.begin + s.size ? t.end() - s.begin : s.size)),
        weight_grad(t.weight_grad + (s.begin - t.first)) {}
  /// f(row, element, place, g) for a lane's elements of the piece.
  template <class F>
  __device__ void each(const Stretch<T>& s, F&& f) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int p = s.place(r);
      if (low <= p && p + kPack<T> <= high) {
        const FullPack<T> g = load_pack(weight_grad + p, kPack<T>);
#pragma unroll
        for (int v = 0; v < kPack<T>; ++v) f(r, v, p + v, g[v]);
      } else {
#pragma unroll
        for (int v = 0; v < kPack<T>; ++v)
          if (low <= p + v && p + v < high) f(r, v, p + v, weight_grad[p + v]);
      }
    }
  }
};

/// One coefficient for the whole term (or none: 1): a warp sum.
template <class T>
__device__ void add_scaled(Stretch<T>& s, const Term<T>& t, T* partial) {
  const T a = t.gain * (t.period ? t.coefficients[0] : T(1));
  T dot = 0;
  Piece<T>(s, t).each(s, [&](int r, int v, int, T g) {
    s.grad[r][v] = fma(a, g, s.grad[r][v]);
    dot = fma(s.theta[r][v], g, dot);
  });
  if (t.period == 0) return;
  dot = warp_reduce(dot, Sum{});
  if (s.lane == 0) *partial = dot;
}

/// A mask (of a tile, which starts where theta does): products go to the warp's shared memory, from where
/// lanes add those of equal place in the window, counted from the stretch's begin. Short windows are shared
/// by several lanes, each taking every `sharers`-th.
template <class T>
__device__ void add_masked(Stretch<T>& s, const Term<T>& t, T* products, T* partials) {
  const Piece<T> piece(s, t);
  const std::int64_t step = kWarp * kPack<T> % t.period;
  std::int64_t row_place = (s.begin + s.place(0)) % t.period, m = row_place;
  int row = 0;
  piece.each(s, [&](int r, int v, int place, T g) {
    for (; row < r; ++row) {
      row_place += step;
      if (row_place >= t.period) row_place -= t.period;
    }
    if (v == 0) m = row_place;
    s.grad[r][v] = fma(t.gain * t.coefficients[m], g, s.grad[r][v]);
    products[place] = s.theta[r][v] * g;
    if (++m == t.period) m = 0;
  });
  __syncwarp();
  const int n = piece.high, window = static_cast<int>(t.period < n ? t.period : n);
  const int sharers = window < kWarp ? kWarp / window : 1, width = sharers * window;
  for (int j = 0; j < width; j += kWarp) {
    T sum = 0;
    if (j + s.lane < width)
      for (int i = j + s.lane; i < n; i += width) sum += products[i];
    T all = sum;
    for (int k = 1; k < sharers; ++k) all += __shfl_sync(0xffffffffu, sum, (s.lane + k * window) % kWarp);
    if (j + s.lane < window) partials[j + s.lane] = all;
  }
  __syncwarp();  // the next term writes `products` again
}

/// A warp owns a stretch; it walks all terms in the order of the list, those that miss the stretch 32 at a
/// time.
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    add_stretches(StretchOrder order, std::int64_t count, const Term<T>* terms, const T* theta, T* theta_grad,
                  T* workspace) {
  __shared__ T products[kWarps][kStretch<T>];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t place = std::int64_t{blockIdx.x} * kWarps + warp;
  const std::int64_t number = place < order.size() ? order.at(place) : -1;
  if (number < 0) return;  // the whole warp
  Stretch<T> s;
  s.begin = number * kStretch<T>;
  s.lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t left = order.group_size - s.begin;
  s.size = static_cast<int>(left < kStretch<T> ? left : kStretch<T>);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    s.theta[r] = load_pack(theta + s.begin + s.place(r), s.size - s.place(r));
    s.grad[r] = load_pack(theta_grad + s.begin + s.place(r), s.size - s.place(r));
  }
  for (std::int64_t t0 = 0; t0 < count; t0 += kWarp) {
    const std::int64_t mine = t0 + s.lane;
    const bool meets = mine < count && terms[mine].first < s.begin + s.size && terms[mine].end() > s.begin;
    unsigned met = __ballot_sync(0xffffffffu, meets);
    for (; met; met &= met - 1) {
      const Term<T> t = terms[t0 + __ffs(static_cast<int>(met)) - 1];
      T* partials = workspace + t.partials + (number - t.first_stretch(kStretch<T>)) * t.width(kStretch<T>);
      if (t.period > 1)
        add_masked(s, t, products[warp], partials);
      else
        add_scaled(s, t, partials);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    store_pack(s.grad[r], theta_grad + s.begin + s.place(r), s.size - s.place(r));
}

/// The partial sum of coefficient j over a stretch of the term; 0 if the stretch has none.
template <class T>
__device__ double partial_of(const Term<T>& t, std::int64_t stretch, std::int64_t j, const T* workspace) {
  const std::int64_t first = t.first_stretch(kStretch<T>), begin = (first + stretch) * kStretch<T>;
  const std::int64_t low = begin > t.first ? begin : t.first;
  const std::int64_t high = begin + kStretch<T> < t.end() ? begin + kStretch<T> : t.end();
  const std::int64_t at = (j + t.period - (low - t.first) % t.period) % t.period;
  return at < high - low ? static_cast<double>(workspace[t.partials + stretch * t.width(kStretch<T>) + at])
                         : 0;
}

/// A block owns the coefficients of a term and of all later terms that share them. Threads share the
/// stretches where coefficients are few, else each takes coefficients.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_coefficients(std::int64_t count, const Term<T>* terms, const T* workspace) {
  T* const grad = terms[blockIdx.x].coefficients_grad;
  bool taken = grad == nullptr;
  for (std::int64_t i = threadIdx.x; i < blockIdx.x; i += kThreads)
    taken = taken || terms[i].coefficients_grad == grad;
  if (__syncthreads_or(taken)) return;
  for (std::int64_t i = blockIdx.x; i < count; ++i) {
    if (terms[i].coefficients_grad != grad) continue;
    const Term<T> t = terms[i];
    const std::int64_t stretches = t.stretches(kStretch<T>);
    if (t.period <= kWarp) {
      for (std::int64_t j = 0; j < t.period; ++j) {
        double sum = 0;
        for (std::int64_t s = threadIdx.x; s < stretches; s += kThreads)
          sum += partial_of(t, s, j, workspace);
        sum = block_reduce(sum, Sum{}, 0.0);
        if (threadIdx.x == 0) grad[j] += static_cast<T>(static_cast<double>(t.gain) * sum);
      }
    } else {
      for (std::int64_t j = threadIdx.x; j < t.period; j += kThreads) {
        double sum = 0;
        for (std::int64_t s = 0; s < stretches; ++s) sum += partial_of(t, s, j, workspace);
        grad[j] += static_cast<T>(static_cast<double>(t.gain) * sum);
      }
    }
  }
}

template <class T>
std::vector<Term<T>> terms_of(Layers<T> layers, std::int64_t group_size) {
  std::vector<Term<T>> terms;
  for_each_term(layers, group_size, kStretch<T>, [&](const Term<T>& t) { terms.push_back(t); });
  return terms;
}

template <class T>
std::vector<Target<T>> targets_of(Layers<T> layers, std::int64_t group_size, std::int64_t period) {
  std::vector<Target<T>> targets;
  std::int64_t term = 0, place = 0;
  for (const auto& l : layers) {
    const bool tiles = l.method == GeneratedLayer<T>::Method::tiles;
    const std::int64_t whole = tiles ? tile_of(l, group_size) : l.n;
    for (std::int64_t at = 0; at < l.n; at += whole) {
      const std::int64_t size = std::min(whole, l.n - at), terms = tiles ? 1 : l.templates;
      targets.push_back({l.weight + at, size, term, terms, place});
      term += terms;
      place += ceil_div(size, period);
    }
  }
  return targets;
}

}  // namespace

template <class T>
GenerateWorkspace generate_workspace(CudaQueue&, Layers<T> layers, std::int64_t group_size) {
  const TermCounts c = count_terms<T>(layers, group_size, kStretch<T>);
  return {c.partials, c.terms * static_cast<std::int64_t>(sizeof(Term<T>) + sizeof(Target<T>))};
}

template <class T>
void generate_forward(CudaQueue& q, Layers<T> layers, std::int64_t group_size, const T* theta, void* plain) {
  std::int64_t period = common_period(layers, group_size, kChunk<T>);
  if (period == 0) period = kChunk<T>;
  const auto terms = terms_of(layers, group_size);
  const auto targets = targets_of(layers, group_size, period);
  if (targets.empty()) return;
  const std::int64_t places = targets.back().first_place + ceil_div(targets.back().size, period);
  const Term<T>* device_terms = upload(q, terms, plain);
  const Target<T>* device_targets = upload(q, targets, static_cast<Term<T>*>(plain) + terms.size());
  launch(q, "generate_forward", write_weights<T>, static_cast<unsigned>(places * ceil_div(period, kChunk<T>)),
         kThreads, 0, period, places, targets.size(), device_targets, device_terms, theta);
}

template <class T>
void generate_backward(CudaQueue& q, Layers<T> layers, std::int64_t group_size, const T* theta, T* theta_grad,
                       T* workspace, void* plain) {
  const auto terms = terms_of(layers, group_size);
  if (terms.empty()) return;
  const std::int64_t period = common_period(layers, group_size, kStretch<T>);
  const StretchOrder order{group_size, period ? period : group_size, kStretch<T>};
  const Term<T>* device_terms = upload(q, terms, plain);
  launch(q, "generate_backward", add_stretches<T>, blocks_for(order.size(), kWarps), kThreads, 0, order,
         terms.size(), device_terms, theta, theta_grad, workspace);
  launch(q, "generate_backward", sum_coefficients<T>, static_cast<unsigned>(terms.size()), kThreads, 0,
         terms.size(), device_terms, workspace);
}

template GenerateWorkspace generate_workspace(CudaQueue&, Layers<float>, std::int64_t);
template GenerateWorkspace generate_workspace(CudaQueue&, Layers<double>, std::int64_t);
template void generate_forward(CudaQueue&, Layers<float>, std::int64_t, const float*, void*);
template void generate_forward(CudaQueue&, Layers<double>, std::int64_t, const double*, void*);
template void generate_backward(CudaQueue&, Layers<float>, std::int64_t, const float*, float*, float*, void*);
template void generate_backward(CudaQueue&, Layers<double>, std::int64_t, const double*, double*, double*,
                                void*);

}  // namespace ssn::kernels
