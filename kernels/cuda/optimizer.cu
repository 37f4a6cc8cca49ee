#include "kernels/optimizer.h"

#include <utility>

#include "kernels/cuda/columns.cuh"
#include "kernels/optimizer_terms.h"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

template <class T, int N>
struct States {
  T* at[N > 0 ? N : 1];
};

template <class T, int V, class Rule, int... S>
__device__ void update_pack(const Rule& rule, const T* g, T* theta, const States<T, sizeof...(S)>& states,
                            std::int64_t at, std::integer_sequence<int, S...>) {
  const Pack<T, V> gradient = Pack<T, V>::load(g + at);
  Pack<T, V> s[] = {Pack<T, V>::load(theta + at), Pack<T, V>::load(states.at[S] + at)...};
#pragma unroll
  for (int k = 0; k < V; ++k) rule(gradient[k], s[S + 1][k]..., s[0][k]);
  s[0].store(theta + at);
  (s[S + 1].store(states.at[S] + at), ...);
}

/// A thread owns one pack of parameters, or one of those behind the last full pack.
template <class T, int V, class Rule, class Rates>
__global__ void __launch_bounds__(kThreads)
    update_kernel(std::int64_t n, Rates rates, const StepValues* step, const T* g, T* theta,
                  States<T, Rule::kStates> states) {
  if (!counts(*step)) return;
  const Rule rule(rates, *step);
  constexpr std::make_integer_sequence<int, Rule::kStates> all{};
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / V;
  if (i < packs) {
    update_pack<T, V>(rule, g, theta, states, i * V, all);
  } else if (const std::int64_t at = packs * V + (i - packs); at < n) {
    update_pack<T, 1>(rule, g, theta, states, at, all);
  }
}

template <class T, class Rule, class Rates, class... S>
void update(CudaQueue& q, Where where, std::int64_t n, const Rates& rates, const StepValues* step, const T* g,
            T* theta, S*... states) {
  if (n == 0) return;
  with_pack<T>(
      0,
      [&](auto v) {
        launch(q, where, update_kernel<T, v.value, Rule, Rates>,
               blocks_for(n / v.value + n % v.value, kThreads), kThreads, 0, n, rates, step, g, theta,
               States<T, Rule::kStates>{{states...}});
      },
      g, theta, states...);
}

/// f(integral_constant N, place of N elements) for the thread's part of a chunk that its block owns: packs of
/// V where the chunk starts at one, and what is behind the last full one.
template <int V, class F>
__device__ void each_part(const LambChunk& chunk, F&& f) {
  const std::int64_t packed = chunk.first % V == 0 ? chunk.size / V * V : 0, end = chunk.first + chunk.size;
  for (std::int64_t i = threadIdx.x * V; i < packed; i += kThreads * V)
    f(std::integral_constant<int, V>{}, chunk.first + i);
  for (std::int64_t i = chunk.first + packed + threadIdx.x; i < end; i += kThreads)
    f(std::integral_constant<int, 1>{}, i);
}

/// A block owns a chunk; leaves its Σ theta² and Σ u².
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    lamb_moments_kernel(LambLayout layout, AdamRates rates, const StepValues* step, const T* g, T* m, T* v,
                        const T* theta, double* sums) {
  if (!counts(*step)) return;
  const LambChunk chunk = layout.chunk[blockIdx.x];
  const LambRule<T> rule(rates, *step, chunk);
  double theta_squares = 0, u_squares = 0;
  each_part<V>(chunk, [&](auto n, std::int64_t at) {
    using P = Pack<T, n.value>;
    const P gradient = P::load(g + at), t = P::load(theta + at);
    P first = P::load(m + at), second = P::load(v + at);
#pragma unroll
    for (int k = 0; k < n.value; ++k) {
      const double u = rule.update(gradient[k], first[k], second[k], t[k]), value = t[k];
      theta_squares += value * value;
      u_squares += u * u;
    }
    first.store(m + at);
    second.store(v + at);
  });
  theta_squares = block_reduce(theta_squares, Sum{}, 0.0);
  u_squares = block_reduce(u_squares, Sum{}, 0.0);
  if (threadIdx.x > 0) return;
  sums[2 * blockIdx.x] = theta_squares;
  sums[2 * blockIdx.x + 1] = u_squares;
}

/// A block owns a tensor.
__global__ void __launch_bounds__(kThreads)
    trust_ratios_kernel(LambLayout layout, const double* sums, double* ratios) {
  double theta_squares = 0, u_squares = 0;
  const std::int64_t end = layout.first_chunk[blockIdx.x + 1];
  for (std::int64_t c = layout.first_chunk[blockIdx.x] + threadIdx.x; c < end; c += kThreads) {
    theta_squares += sums[2 * c];
    u_squares += sums[2 * c + 1];
  }
  theta_squares = block_reduce(theta_squares, Sum{}, 0.0);
  u_squares = block_reduce(u_squares, Sum{}, 0.0);
  if (threadIdx.x == 0) ratios[blockIdx.x] = trust_ratio(theta_squares, u_squares);
}

/// A block owns a chunk.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    lamb_step_kernel(LambLayout layout, AdamRates rates, const StepValues* step, const T* m, const T* v,
                     T* theta, const double* ratios) {
  if (!counts(*step)) return;
  const LambChunk chunk = layout.chunk[blockIdx.x];
  const LambRule<T> rule(rates, *step, chunk);
  const T factor = T(-step->lr * ratios[chunk.tensor]);
  each_part<V>(chunk, [&](auto n, std::int64_t at) {
    using P = Pack<T, n.value>;
    const P first = P::load(m + at), second = P::load(v + at);
    P t = P::load(theta + at);
#pragma unroll
    for (int k = 0; k < n.value; ++k)
      t[k] = std::fma(factor, rule.direction(first[k], second[k], t[k]), t[k]);
    t.store(theta + at);
  });
}

/// A block owns a chunk, a thread every kThreads-th pack of it, and one of the elements behind the last.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) squares_kernel(std::int64_t n, const T* x, double* sums) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * kSquaresChunk,
                     end = begin + kSquaresChunk < n ? begin + kSquaresChunk : n,
                     packed = begin + (end - begin) / V * V;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x * V; i < packed; i += kThreads * V) {
    const Pack<T, V> p = Pack<T, V>::load(x + i);
#pragma unroll
    for (int k = 0; k < V; ++k) sum += static_cast<double>(p[k]) * static_cast<double>(p[k]);
  }
  if (const std::int64_t i = packed + threadIdx.x; i < end)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_reduce(sum, Sum{}, 0.0);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// One block.
__global__ void __launch_bounds__(kThreads) sum_kernel(std::int64_t n, const double* x, double* sum) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) own += x[i];
  own = block_reduce(own, Sum{}, 0.0);
  if (threadIdx.x == 0) *sum = own;
}

/// One thread.
__global__ void set_kernel(StepValues values, StepValues* step) {
  *step = values;
}

/// One thread.
__global__ void clip_kernel(double most, const double* squares, StepValues* step) {
  clip_step(most, *squares, *step);
}

/// A thread owns one pack, or one of the elements behind the last full pack.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    not_finite_kernel(std::int64_t n, const T* x, std::int64_t first, std::int64_t* found) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / V;
  const auto report = [&](std::int64_t at) {
    atomicMin(reinterpret_cast<long long*>(found), static_cast<long long>(first + at));
  };
  if (i < packs) {
    const Pack<T, V> p = Pack<T, V>::load(x + i * V);
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (!std::isfinite(p[k])) report(i * V + k);
  } else if (const std::int64_t at = packs * V + (i - packs); at < n) {
    if (!std::isfinite(x[at])) report(at);
  }
}

}  // namespace

void set_step(CudaQueue& q, const StepValues& values, StepValues* step) {
  launch(q, "set_step", set_kernel, 1, 1, 0, values, step);
}

template <class T>
void sgd(CudaQueue& q, std::int64_t n, const SgdRates& rates, const StepValues* step, const T* g, T* velocity,
         T* theta) {
  update<T, SgdRule<T>>(q, "sgd", n, rates, step, g, theta, velocity);
}

template <class T>
void adam(CudaQueue& q, std::int64_t n, const AdamRates& rates, const StepValues* step, const T* g, T* m,
          T* v, T* theta) {
  update<T, AdamRule<T>>(q, "adam", n, rates, step, g, theta, m, v);
}

template <class T>
void rmsprop(CudaQueue& q, std::int64_t n, const RmsPropRates& rates, const StepValues* step, const T* g,
             T* square, T* velocity, T* theta) {
  update<T, RmsPropRule<T>>(q, "rmsprop", n, rates, step, g, theta, square, velocity);
}

template <class T>
void move_average(CudaQueue& q, std::int64_t n, double decay, const StepValues* step, const T* x,
                  T* average) {
  update<T, AverageRule<T>>(q, "move_average", n, decay, step, x, average);
}

template <class T>
void lamb(CudaQueue& q, const LambLayout& l, const AdamRates& rates, const StepValues* step, const T* g, T* m,
          T* v, T* theta, double* workspace) {
  if (l.chunks == 0) return;
  const auto chunks = static_cast<unsigned>(l.chunks), tensors = static_cast<unsigned>(l.tensors);
  double *const sums = workspace, *const ratios = workspace + 2 * l.chunks;
  with_pack<T>(
      0,
      [&](auto n) {
        launch(q, "lamb", lamb_moments_kernel<T, n.value>, chunks, kThreads, 0, l, rates, step, g, m, v,
               theta, sums);
        launch(q, "lamb", trust_ratios_kernel, tensors, kThreads, 0, l, sums, ratios);
        launch(q, "lamb", lamb_step_kernel<T, n.value>, chunks, kThreads, 0, l, rates, step, m, v, theta,
               ratios);
      },
      g, m, v, theta);
}

template <class T>
void sum_of_squares(CudaQueue& q, std::int64_t n, const T* x, double* sum, double* workspace) {
  const std::int64_t chunks = squares_workspace(n);
  if (n > 0)
    with_pack<T>(
        0,
        [&](auto v) {
          launch(q, "sum_of_squares", squares_kernel<T, v.value>, static_cast<unsigned>(chunks), kThreads, 0,
                 n, x, workspace);
        },
        x);
  launch(q, "sum_of_squares", sum_kernel, 1, kThreads, 0, chunks, workspace, sum);
}

void clip(CudaQueue& q, double most, const double* squares, StepValues* step) {
  launch(q, "clip", clip_kernel, 1, 1, 0, most, squares, step);
}

template <class T>
void find_not_finite(CudaQueue& q, std::int64_t n, const T* x, std::int64_t first, std::int64_t* found) {
  if (n == 0) return;
  with_pack<T>(
      0,
      [&](auto v) {
        launch(q, "find_not_finite", not_finite_kernel<T, v.value>,
               blocks_for(n / v.value + n % v.value, kThreads), kThreads, 0, n, x, first, found);
      },
      x);
}

template void sgd<float>(CudaQueue&, std::int64_t, const SgdRates&, const StepValues*, const float*, float*,
                         float*);
template void adam<float>(CudaQueue&, std::int64_t, const AdamRates&, const StepValues*, const float*, float*,
                          float*, float*);
template void rmsprop<float>(CudaQueue&, std::int64_t, const RmsPropRates&, const StepValues*, const float*,
                             float*, float*, float*);
template void lamb<float>(CudaQueue&, const LambLayout&, const AdamRates&, const StepValues*, const float*,
                          float*, float*, float*, double*);
template void move_average<float>(CudaQueue&, std::int64_t, double, const StepValues*, const float*, float*);
template void sum_of_squares<float>(CudaQueue&, std::int64_t, const float*, double*, double*);
template void find_not_finite<float>(CudaQueue&, std::int64_t, const float*, std::int64_t, std::int64_t*);
template void sgd<double>(CudaQueue&, std::int64_t, const SgdRates&, const StepValues*, const double*,
                          double*, double*);
template void adam<double>(CudaQueue&, std::int64_t, const AdamRates&, const StepValues*, const double*,
                           double*, double*, double*);
template void rmsprop<double>(CudaQueue&, std::int64_t, const RmsPropRates&, const StepValues*, const double*,
                              double*, double*, double*);
template void lamb<double>(CudaQueue&, const LambLayout&, const AdamRates&, const StepValues*, const double*,
                           double*, double*, double*, double*);
template void move_average<double>(CudaQueue&, std::int64_t, double, const StepValues*, const double*,
                                   double*);
template void sum_of_squares<double>(CudaQueue&, std::int64_t, const double*, double*, double*);
template void find_not_finite<double>(CudaQueue&, std::int64_t, const double*, std::int64_t, std::int64_t*);

}  // namespace ssn::kernels
