#include "kernels/elementwise.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

struct ReluForward {
  template <class T>
  __device__ T operator()(T x) const {
    return relu(x);
  }
};
struct ReluBackward {
  template <class T>
  __device__ T operator()(T y, T gy) const {
    return relu_gradient(y, gy);
  }
};

/// y = f(a...), element by element. A thread owns one pack, or one of the elements behind the last full pack.
template <class T, int V, class F, class... A>
__global__ void __launch_bounds__(kThreads) map_kernel(std::int64_t n, T* y, F f, const A*... a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / V;
  if (i < packs) {
    const std::int64_t at = i * V;
    [&](const Pack<A, V>&... in) {
      Pack<T, V> out;
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = f(in[k]...);
      out.store(y + at);
    }(Pack<A, V>::load(a + at)...);
  } else if (const std::int64_t at = packs * V + (i - packs); at < n) {
    y[at] = f(a[at]...);
  }
}

template <class T, class F, class... A>
void map(CudaQueue& q, Where where, std::int64_t n, T* y, F f, const A*... a) {
  if (n == 0) return;
  with_pack<T>(
      0,
      [&](auto v) {
        launch(q, where, map_kernel<T, v.value, F, A...>, blocks_for(n / v.value + n % v.value, kThreads),
               kThreads, 0, n, y, f, a...);
      },
      y, a...);
}

/// A thread owns one pack of columns in every blockDim.y-th row of a chunk.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    bias_kernel(std::int64_t rows, std::int64_t cols, std::int64_t chunk, const T* x, const T* bias, T* y) {
  const ColumnThread<V> thread(rows, cols, chunk);
  if (!thread.active()) return;
  const Pack<T, V> b = Pack<T, V>::load(bias + thread.column);
  thread.each([&](std::int64_t at) {
    Pack<T, V> v = Pack<T, V>::load(x + at);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] += b[i];
    v.store(y + at);
  });
}

}  // namespace

template <class T>
void accumulate(CudaQueue& q, std::int64_t n, const T* x, T* y) {
  map(q, "accumulate", n, y, Sum{}, static_cast<const T*>(y), x);
}
template <class T>
void add_forward(CudaQueue& q, std::int64_t n, const T* a, const T* b, T* y) {
  map(q, "add_forward", n, y, Sum{}, a, b);
}
template <class T>
void relu_forward(CudaQueue& q, std::int64_t n, const T* x, T* y) {
  map(q, "relu_forward", n, y, ReluForward{}, x);
}
template <class T>
void relu_backward(CudaQueue& q, std::int64_t n, const T* y, const T* gy, T* gx) {
  map(q, "relu_backward", n, gx, ReluBackward{}, y, gy);
}
template <class T>
void bias_forward(CudaQueue& q, std::int64_t rows, std::int64_t cols, const T* x, const T* bias, T* y) {
  if (rows * cols == 0) return;
  with_pack<T>(
      cols,
      [&](auto v) {
        const ColumnLaunch l(chunk_count(rows, cols), cols / v.value);
        launch(q, "bias_forward", bias_kernel<T, v.value>, l.grid, l.block, 0, rows, cols, chunk_rows(cols),
               x, bias, y);
      },
      x, bias, y);
}

template void accumulate<float>(CudaQueue&, std::int64_t, const float*, float*);
template void accumulate<double>(CudaQueue&, std::int64_t, const double*, double*);
template void add_forward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void add_forward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void relu_forward<float>(CudaQueue&, std::int64_t, const float*, float*);
template void relu_forward<double>(CudaQueue&, std::int64_t, const double*, double*);
template void relu_backward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void relu_backward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void bias_forward<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, const float*, float*);
template void bias_forward<double>(CudaQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                   double*);

}  // namespace ssn::kernels
