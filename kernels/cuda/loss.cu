#include "kernels/loss.h"

#include <cmath>

#include "kernels/cuda/reduce.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 128;

/// A block owns a row; its threads take every kThreads-th class.
template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy(std::int64_t classes, double smoothing, const T* x,
                                                          const std::int32_t* labels, T* loss, T* p) {
  const std::int64_t row = blockIdx.x;
  x += row * classes, p += row * classes;
  const std::int32_t label = labels[row] < 0 ? 0 : labels[row];
  const double at_label =
      label < classes ? static_cast<double>(x[label]) : NAN;  // before p, which may alias x
  T most = -INFINITY;
  for (std::int64_t c = threadIdx.x; c < classes; c += kThreads) most = Max()(most, x[c]);
  most = block_reduce(most, Max(), T(-INFINITY));
  double all = 0, sum = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += kThreads) {
    const T d = x[c] - most, e = exp(d);
    p[c] = e;
    all += static_cast<double>(d);
    sum += static_cast<double>(e);
  }
  all = block_reduce(all, Sum(), 0.0);
  sum = block_reduce(sum, Sum(), 0.0);
  for (std::int64_t c = threadIdx.x; c < classes; c += kThreads)
    p[c] = static_cast<T>(static_cast<double>(p[c]) / sum);
  if (threadIdx.x > 0) return;
  const double n = static_cast<double>(classes), distance = at_label - static_cast<double>(most);
  // Without smoothing the logits of the other classes may be infinite.
  const double value =
      smoothing == 0 ? log(sum) - distance : log(sum) - (1 - smoothing) * distance - smoothing / n * all;
  loss[row] = labels[row] < 0 ? T(0) : static_cast<T>(value);
}

/// A thread owns one element of gx.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_gradient(std::int64_t n, std::int64_t classes, T others, T target, double scale, const T* p,
                           const std::int32_t* labels, const T* gloss, T* gx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int32_t label = labels[i / classes];
  const T factor = static_cast<T>(scale * static_cast<double>(*gloss));
  const T g = factor * (p[i] - (i % classes == label ? target : others));
  gx[i] = label < 0 ? T(0) : label < classes ? g : static_cast<T>(NAN);
}

/// The one block adds every kThreads-th element in a thread.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_scaled(std::int64_t n, double scale, const T* x, T* total) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += static_cast<double>(x[i]);
  sum = block_reduce(sum, Sum(), 0.0);
  if (threadIdx.x == 0) *total = static_cast<T>(scale * sum);
}

}  // namespace

template <class T>
void cross_entropy_forward(CudaQueue& q, std::int64_t rows, std::int64_t classes, double smoothing,
                           const T* x, const std::int32_t* labels, T* loss, T* p) {
  launch(q, "cross_entropy_forward", cross_entropy<T>, static_cast<unsigned>(rows), kThreads, 0, classes,
         smoothing, x, labels, loss, p);
}
template <class T>
void cross_entropy_backward(CudaQueue& q, std::int64_t rows, std::int64_t classes, double smoothing,
                            double scale, const T* p, const std::int32_t* labels, const T* gloss, T* gx) {
  const std::int64_t n = rows * classes;
  const double share = smoothing / static_cast<double>(classes);
  launch(q, "cross_entropy_backward", cross_entropy_gradient<T>, blocks_for(n, kThreads), kThreads, 0, n,
         classes, static_cast<T>(share), static_cast<T>(1 - smoothing + share), scale, p, labels, gloss, gx);
}
template <class T>
void scaled_sum(CudaQueue& q, std::int64_t n, double scale, const T* x, T* total) {
  launch(q, "scaled_sum", sum_scaled<T>, 1u, kThreads, 0, n, scale, x, total);
}

template void cross_entropy_forward<float>(CudaQueue&, std::int64_t, std::int64_t, double, const float*,
                                           const std::int32_t*, float*, float*);
template void cross_entropy_forward<double>(CudaQueue&, std::int64_t, std::int64_t, double, const double*,
                                            const std::int32_t*, double*, double*);
template void cross_entropy_backward<float>(CudaQueue&, std::int64_t, std::int64_t, double, double,
                                            const float*, const std::int32_t*, const float*, float*);
template void cross_entropy_backward<double>(CudaQueue&, std::int64_t, std::int64_t, double, double,
                                             const double*, const std::int32_t*, const double*, double*);
template void scaled_sum<float>(CudaQueue&, std::int64_t, double, const float*, float*);
template void scaled_sum<double>(CudaQueue&, std::int64_t, double, const double*, double*);

}  // namespace ssn::kernels
