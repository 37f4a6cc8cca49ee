#include "kernels/optimizer.h"

#include <atomic>

#include "kernels/optimizer_terms.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

template <class T, class Rule, class Rates, class... S>
void update(std::int64_t n, const Rates& rates, const StepValues* step, const T* g, T* theta, S*... states) {
  if (!counts(*step)) return;
  const Rule rule(rates, *step);
  parallel_for(n, 8192, [&](std::int64_t begin, std::int64_t end) {
    const Rule local = rule;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) local(g[i], states[i]..., theta[i]);
  });
}

template <class T>
double squares(std::int64_t n, const T* x) {
  constexpr int kLanes = 16;  // sums side by side, in whatever vectors there are
  double lanes[kLanes] = {}, sum = 0;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) {
      const double v = x[i + k];
      lanes[k] = std::fma(v, v, lanes[k]);
    }
  for (; i < n; ++i) lanes[i % kLanes] += double{x[i]} * double{x[i]};
  for (double lane : lanes) sum += lane;
  return sum;
}

/// The first pass over a chunk: its Σ theta² and Σ u².
template <class T>
void lamb_moments(std::int64_t n, const LambRule<T>& rule, const T* g, T* m, T* v, const T* theta,
                  double (&sums)[2]) {
  constexpr std::int64_t kPiece = 512;  // stays in the first cache
  T u[kPiece];
  for (std::int64_t first = 0; first < n; first += kPiece) {
    const std::int64_t count = std::min(kPiece, n - first);
    const LambRule<T> local = rule;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
      u[i] = local.update(g[first + i], m[first + i], v[first + i], theta[first + i]);
    sums[0] += squares(count, theta + first);
    sums[1] += squares(count, u);
  }
}

}  // namespace

void set_step(CpuQueue&, const StepValues& values, StepValues* step) {
  *step = values;
}

template <class T>
void sgd(CpuQueue&, std::int64_t n, const SgdRates& rates, const StepValues* step, const T* g, T* velocity,
         T* theta) {
  update<T, SgdRule<T>>(n, rates, step, g, theta, velocity);
}

template <class T>
void adam(CpuQueue&, std::int64_t n, const AdamRates& rates, const StepValues* step, const T* g, T* m, T* v,
          T* theta) {
  update<T, AdamRule<T>>(n, rates, step, g, theta, m, v);
}

template <class T>
void rmsprop(CpuQueue&, std::int64_t n, const RmsPropRates& rates, const StepValues* step, const T* g,
             T* square, T* velocity, T* theta) {
  update<T, RmsPropRule<T>>(n, rates, step, g, theta, square, velocity);
}

template <class T>
void move_average(CpuQueue&, std::int64_t n, double decay, const StepValues* step, const T* x, T* average) {
  update<T, AverageRule<T>>(n, decay, step, x, average);
}

template <class T>
void lamb(CpuQueue&, const LambLayout& l, const AdamRates& rates, const StepValues* step, const T* g, T* m,
          T* v, T* theta, double* workspace) {
  if (!counts(*step)) return;
  const auto each_chunk = [&](auto&& f) {
    parallel_for(l.chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) f(c, l.chunk[c], LambRule<T>(rates, *step, l.chunk[c]));
    });
  };
  double *const sums = workspace, *const ratios = workspace + 2 * l.chunks;
  each_chunk([&](std::int64_t c, const LambChunk& chunk, const LambRule<T>& rule) {
    double own[2] = {};
    const std::int64_t at = chunk.first;
    lamb_moments(chunk.size, rule, g + at, m + at, v + at, theta + at, own);
    std::copy_n(own, 2, sums + 2 * c);
  });
  for (std::int64_t t = 0; t < l.tensors; ++t) {
    double tensor[2] = {};
    for (std::int64_t c = l.first_chunk[t]; c < l.first_chunk[t + 1]; ++c)
      for (int k = 0; k < 2; ++k) tensor[k] += sums[2 * c + k];
    ratios[t] = trust_ratio(tensor[0], tensor[1]);
  }
  each_chunk([&](std::int64_t, const LambChunk& chunk, const LambRule<T>& rule) {
    const T factor = T(-step->lr * ratios[chunk.tensor]);
    const LambRule<T> local = rule;
#pragma omp simd
    for (std::int64_t i = chunk.first; i < chunk.first + chunk.size; ++i)
      theta[i] = std::fma(factor, local.direction(m[i], v[i], theta[i]), theta[i]);
  });
}

template <class T>
void sum_of_squares(CpuQueue&, std::int64_t n, const T* x, double* sum, double* workspace) {
  parallel_chunks(n, kSquaresChunk, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    workspace[c] = squares(end - begin, x + begin);
  });
  *sum = 0;
  for (std::int64_t c = 0; c < squares_workspace(n); ++c) *sum += workspace[c];
}

void clip(CpuQueue&, double most, const double* squares, StepValues* step) {
  clip_step(most, *squares, *step);
}

template <class T>
void find_not_finite(CpuQueue&, std::int64_t n, const T* x, std::int64_t first, std::int64_t* found) {
  parallel_chunks(n, kSquaresChunk, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    T zero = 0;  // NaN if an element is not finite
#pragma omp simd reduction(+ : zero)
    for (std::int64_t i = begin; i < end; ++i) zero += 0 * x[i];
    if (zero == 0) return;
    const T* at = std::find_if(x + begin, x + end, [](T v) { return !std::isfinite(v); });
    const std::atomic_ref<std::int64_t> least(*found);
    std::int64_t before = least;
    while (first + (at - x) < before && !least.compare_exchange_weak(before, first + (at - x))) {
    }
  });
}

template void sgd<float>(CpuQueue&, std::int64_t, const SgdRates&, const StepValues*, const float*, float*,
                         float*);
template void adam<float>(CpuQueue&, std::int64_t, const AdamRates&, const StepValues*, const float*, float*,
                          float*, float*);
template void rmsprop<float>(CpuQueue&, std::int64_t, const RmsPropRates&, const StepValues*, const float*,
                             float*, float*, float*);
template void lamb<float>(CpuQueue&, const LambLayout&, const AdamRates&, const StepValues*, const float*,
                          float*, float*, float*, double*);
template void move_average<float>(CpuQueue&, std::int64_t, double, const StepValues*, const float*, float*);
template void sum_of_squares<float>(CpuQueue&, std::int64_t, const float*, double*, double*);
template void find_not_finite<float>(CpuQueue&, std::int64_t, const float*, std::int64_t, std::int64_t*);
template void sgd<double>(CpuQueue&, std::int64_t, const SgdRates&, const StepValues*, const double*, double*,
                          double*);
template void adam<double>(CpuQueue&, std::int64_t, const AdamRates&, const StepValues*, const double*,
                           double*, double*, double*);
template void rmsprop<double>(CpuQueue&, std::int64_t, const RmsPropRates&, const StepValues*, const double*,
                              double*, double*, double*);
template void lamb<double>(CpuQueue&, const LambLayout&, const AdamRates&, const StepValues*, const double*,
                           double*, double*, double*, double*);
template void move_average<double>(CpuQueue&, std::int64_t, double, const StepValues*, const double*,
                                   double*);
template void sum_of_squares<double>(CpuQueue&, std::int64_t, const double*, double*, double*);
template void find_not_finite<double>(CpuQueue&, std::int64_t, const double*, std::int64_t, std::int64_t*);

}  // namespace ssn::kernels
