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
template <class T, int V, class Rule>
__global__ void __launch_bounds__(kThreads)
    update_kernel(std::int64_t n, Rule rule, const T* g, T* theta, States<T, Rule::kStates> states) {
  constexpr std::make_integer_sequence<int, Rule::kStates> all{};
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / V;
  if (i < packs) {
    update_pack<T, V>(rule, g, theta, states, i * V, all);
  } else if (const std::int64_t at = packs * V + (i - packs); at < n) {
    update_pack<T, 1>(rule, g, theta, states, at, all);
  }
}

template <class T, class Rule, class... S>
void update(CudaQueue& q, Where where, std::int64_t n, const Rule& rule, const T* g, T* theta, S*... states) {
  if (n == 0) return;
  with_pack<T>(
      0,
      [&](auto v) {
        launch(q, where, update_kernel<T, v.value, Rule>, blocks_for(n / v.value + n % v.value, kThreads),
               kThreads, 0, n, rule, g, theta, States<T, Rule::kStates>{{states...}});
      },
      g, theta, states...);
}

/// A block owns a chunk, a thread every kThreads-th element of it; leaves the chunk's Σ theta² and Σ u².
template <class T>
__global__ void __launch_bounds__(kThreads)
    lamb_moments_kernel(LambLayout layout, LambRule<T> all, const T* g, T* m, T* v, const T* theta,
                        double* sums) {
  const LambChunk chunk = layout.chunk[blockIdx.x];
  const LambRule<T> rule = all.of(chunk);
  double theta_squares = 0, u_squares = 0;
  for (std::int64_t i = chunk.first + threadIdx.x; i < chunk.first + chunk.size; i += kThreads) {
    const double t = theta[i], u = rule.update(g[i], m[i], v[i], theta[i]);
    theta_squares += t * t;
    u_squares += u * u;
  }
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

/// A block owns a chunk, a thread every kThreads-th element of it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    lamb_step_kernel(LambLayout layout, double lr, LambRule<T> all, const T* m, const T* v, T* theta,
                     const double* ratios) {
  const LambChunk chunk = layout.chunk[blockIdx.x];
  const LambRule<T> rule = all.of(chunk);
  const T factor = T(-lr * ratios[chunk.tensor]);
  for (std::int64_t i = chunk.first + threadIdx.x; i < chunk.first + chunk.size; i += kThreads)
    theta[i] = std::fma(factor, rule.direction(m[i], v[i], theta[i]), theta[i]);
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

}  // namespace

template <class T>
void sgd(CudaQueue& q, std::int64_t n, const SgdStep& step, const T* g, T* velocity, T* theta) {
  update(q, "sgd", n, SgdRule<T>(step), g, theta, velocity);
}

template <class T>
void adam(CudaQueue& q, std::int64_t n, const AdamStep& step, const T* g, T* m, T* v, T* theta) {
  update(q, "adam", n, AdamRule<T>(step), g, theta, m, v);
}

template <class T>
void rmsprop(CudaQueue& q, std::int64_t n, const RmsPropStep& step, const T* g, T* square, T* velocity,
             T* theta) {
  update(q, "rmsprop", n, RmsPropRule<T>(step), g, theta, square, velocity);
}

template <class T>
void move_average(CudaQueue& q, std::int64_t n, double decay, const T* x, T* average) {
  update(q, "move_average", n, AverageRule<T>{T(1 - decay)}, x, average);
}

template <class T>
void lamb(CudaQueue& q, const LambLayout& l, const AdamStep& step, const T* g, T* m, T* v, T* theta,
          double* workspace) {
  if (l.chunks == 0) return;
  const auto chunks = static_cast<unsigned>(l.chunks), tensors = static_cast<unsigned>(l.tensors);
  double *const sums = workspace, *const ratios = workspace + 2 * l.chunks;
  launch(q, "lamb", lamb_moments_kernel<T>, chunks, kThreads, 0, l, LambRule<T>(step), g, m, v, theta, sums);
  launch(q, "lamb", trust_ratios_kernel, tensors, kThreads, 0, l, sums, ratios);
  launch(q, "lamb", lamb_step_kernel<T>, chunks, kThreads, 0, l, step.lr, LambRule<T>(step), m, v, theta,
         ratios);
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

template void sgd<float>(CudaQueue&, std::int64_t, const SgdStep&, const float*, float*, float*);
template void adam<float>(CudaQueue&, std::int64_t, const AdamStep&, const float*, float*, float*, float*);
template void rmsprop<float>(CudaQueue&, std::int64_t, const RmsPropStep&, const float*, float*, float*,
                             float*);
template void lamb<float>(CudaQueue&, const LambLayout&, const AdamStep&, const float*, float*, float*,
                          float*, double*);
template void move_average<float>(CudaQueue&, std::int64_t, double, const float*, float*);
template void sum_of_squares<float>(CudaQueue&, std::int64_t, const float*, double*, double*);
template void sgd<double>(CudaQueue&, std::int64_t, const SgdStep&, const double*, double*, double*);
template void adam<double>(CudaQueue&, std::int64_t, const AdamStep&, const double*, double*, double*,
                           double*);
template void rmsprop<double>(CudaQueue&, std::int64_t, const RmsPropStep&, const double*, double*, double*,
                              double*);
template void lamb<double>(CudaQueue&, const LambLayout&, const AdamStep&, const double*, double*, double*,
                           double*, double*);
template void move_average<double>(CudaQueue&, std::int64_t, double, const double*, double*);
template void sum_of_squares<double>(CudaQueue&, std::int64_t, const double*, double*, double*);

}  // namespace ssn::kernels
