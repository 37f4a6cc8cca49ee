#include "kernels/embedding.h"

#include <cmath>

#include "kernels/cuda/reduce.cuh"
#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 128;

/// A block owns a row of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(std::int64_t rows, std::int64_t cols, const T* table, const std::int32_t* ids, T* y) {
  const std::int64_t id = ids[blockIdx.x], to = blockIdx.x * cols;
  const bool valid = id >= 0 && id < rows;
  for (std::int64_t c = threadIdx.x; c < cols; c += kThreads)
    y[to + c] = valid ? table[id * cols + c] : T(NAN);
}

/// The block of an id's first place owns its row of the table, and adds what all its places give.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(std::int64_t count, std::int64_t rows, std::int64_t cols, const T* gy,
                   const std::int32_t* ids, T* gtable) {
  const std::int32_t id = ids[blockIdx.x];
  int earlier = 0;
  for (std::int64_t i = threadIdx.x; i < blockIdx.x; i += kThreads) earlier += ids[i] == id;
  earlier = block_reduce(earlier, Sum(), 0);
  if (earlier > 0 || id < 0 || id >= rows) return;
  T* const to = gtable + id * cols;
  for (std::int64_t c = threadIdx.x; c < cols; c += kThreads) {
    T sum = to[c];
    for (std::int64_t i = blockIdx.x; i < count; ++i)
      if (ids[i] == id) sum += gy[i * cols + c];
    to[c] = sum;
  }
}

}  // namespace

template <class T>
void embedding_forward(CudaQueue& q, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* table,
                       const std::int32_t* ids, T* y) {
  if (count * cols == 0) return;
  launch(q, "embedding_forward", gather_kernel<T>, blocks_for(count, 1), kThreads, 0, rows, cols, table, ids,
         y);
}
template <class T>
void embedding_backward(CudaQueue& q, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* gy,
                        const std::int32_t* ids, T* gtable) {
  if (count * cols == 0) return;
  launch(q, "embedding_backward", scatter_kernel<T>, blocks_for(count, 1), kThreads, 0, count, rows, cols, gy,
         ids, gtable);
}

template void embedding_forward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                       const std::int32_t*, float*);
template void embedding_forward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                        const std::int32_t*, double*);
template void embedding_backward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                        const std::int32_t*, float*);
template void embedding_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                         const std::int32_t*, double*);

}  // namespace ssn::kernels
