#include "kernels/loss.h"

#include <cmath>

#include "kernels/cuda/reduce.cuh"
#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr int kMostThreads = 1024;

/// Threads of a block that owns a row.
int threads_for(std::int64_t classes) {
  return classes <= kWarp ? kWarp : classes <= 1024 ? 128 : 512;
}

/// A block owns a row, a thread every blockDim.x-th class of it.
template <class T>
__global__ void __launch_bounds__(512)
    cross_entropy_kernel(std::int64_t classes, T smoothing, const T* x, const std::int32_t* labels, T* loss,
                         T* statistics) {
  const std::int32_t label = labels[blockIdx.x];
  x += blockIdx.x * classes;
  const T at_label = label < classes ? x[label < 0 ? 0 : label] : T(NAN);
  T most = -T(INFINITY);
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) most = Max()(most, x[c]);
  most = block_reduce(most, Max(), -T(INFINITY));
  T sum = 0, all = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    const T d = x[c] - most;
    sum += exp(d);
    all += d;
  }
  sum = block_reduce(sum, Sum(), T(0));
  all = block_reduce(all, Sum(), T(0));
  if (threadIdx.x > 0) return;
  statistics[2 * blockIdx.x] = most;
  statistics[2 * blockIdx.x + 1] = sum;
  const T log_sum = log(sum), centred = at_label - most;
  // Without smoothing the logits of the other classes may be infinite.
  const T value = smoothing == 0
                      ? log_sum - centred
                      : log_sum - (1 - smoothing) * centred - smoothing / static_cast<T>(classes) * all;
  loss[blockIdx.x] = label < 0 ? T(0) : value;
}

/// A block owns a row, a thread every blockDim.x-th class of it. `target` is that of the label's class,
/// `others` that of every other.
template <class T>
__global__ void __launch_bounds__(512)
    cross_entropy_gradient_kernel(std::int64_t classes, T target, T others, T scale, const T* x,
                                  const T* statistics, const std::int32_t* labels, const T* gloss, T* gx) {
  const std::int32_t label = labels[blockIdx.x];
  const T factor = label < 0 ? T(0) : label < classes ? scale * *gloss : T(NAN);
  const T most = statistics[2 * blockIdx.x], sum = statistics[2 * blockIdx.x + 1];
  x += blockIdx.x * classes;
  gx += blockIdx.x * classes;
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x)
    gx[c] = label < 0 ? T(0) : factor * (exp(x[c] - most) / sum - (c == label ? target : others));
}

/// A block owns a row, a thread every blockDim.x-th class of it.
template <class T>
__global__ void __launch_bounds__(512)
    label_ranks_kernel(std::int64_t classes, const T* x, const std::int32_t* labels, T* rank) {
  const std::int32_t label = labels[blockIdx.x];
  const bool known = label >= 0 && label < classes;
  x += blockIdx.x * classes;
  const T own = x[known ? label : 0];
  std::int32_t before = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    const bool behind = x[c] < own || (x[c] == own && c > label);
    before += c != label && !behind;
  }
  before = block_reduce(before, Sum(), 0);
  if (threadIdx.x == 0) rank[blockIdx.x] = static_cast<T>(known ? before : classes);
}

/// One block.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    scaled_sum_kernel(std::int64_t n, double scale, const T* x, T* total) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
  sum = block_reduce(sum, Sum(), 0.0);
  if (threadIdx.x == 0) *total = static_cast<T>(scale * sum);
}

}  // namespace

template <class T>
void cross_entropy_forward(CudaQueue& q, std::int64_t rows, std::int64_t classes, double smoothing,
                           const T* x, const std::int32_t* labels, T* loss, T* statistics) {
  if (rows == 0) return;
  launch(q, "cross_entropy_forward", cross_entropy_kernel<T>, blocks_for(rows, 1), threads_for(classes), 0,
         classes, smoothing, x, labels, loss, statistics);
}
template <class T>
void cross_entropy_backward(CudaQueue& q, std::int64_t rows, std::int64_t classes, double smoothing,
                            double scale, const T* x, const T* statistics, const std::int32_t* labels,
                            const T* gloss, T* gx) {
  if (rows == 0) return;
  const double others = smoothing / static_cast<double>(classes), target = 1 - smoothing + others;
  launch(q, "cross_entropy_backward", cross_entropy_gradient_kernel<T>, blocks_for(rows, 1),
         threads_for(classes), 0, classes, target, others, scale, x, statistics, labels, gloss, gx);
}
template <class T>
void label_ranks(CudaQueue& q, std::int64_t rows, std::int64_t classes, const T* x,
                 const std::int32_t* labels, T* rank) {
  if (rows == 0) return;
  launch(q, "label_ranks", label_ranks_kernel<T>, blocks_for(rows, 1), threads_for(classes), 0, classes, x,
         labels, rank);
}
template <class T>
void scaled_sum(CudaQueue& q, std::int64_t n, double scale, const T* x, T* total) {
  launch(q, "scaled_sum", scaled_sum_kernel<T>, 1, n <= 256 ? 256 : kMostThreads, 0, n, scale, x, total);
}

template void cross_entropy_forward<float>(CudaQueue&, std::int64_t, std::int64_t, double, const float*,
                                           const std::int32_t*, float*, float*);
template void cross_entropy_forward<double>(CudaQueue&, std::int64_t, std::int64_t, double, const double*,
                                            const std::int32_t*, double*, double*);
template void cross_entropy_backward<float>(CudaQueue&, std::int64_t, std::int64_t, double, double,
                                            const float*, const float*, const std::int32_t*, const float*,
                                            float*);
template void cross_entropy_backward<double>(CudaQueue&, std::int64_t, std::int64_t, double, double,
                                             const double*, const double*, const std::int32_t*, const double*,
                                             double*);
template void label_ranks<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, const std::int32_t*,
                                 float*);
template void label_ranks<double>(CudaQueue&, std::int64_t, std::int64_t, const double*, const std::int32_t*,
                                  double*);
template void scaled_sum<float>(CudaQueue&, std::int64_t, double, const float*, float*);
template void scaled_sum<double>(CudaQueue&, std::int64_t, double, const double*, double*);

}  // namespace ssn::kernels
