#include "kernels/elementwise.h"

#include "kernels/activation.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

struct AddRelu {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return relu(a + b);
  }
};
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

struct TanhForward {
  template <class T>
  __device__ T operator()(T x) const {
    return tanh(x);
  }
};
struct TanhBackward {
  template <class T>
  __device__ T operator()(T y, T gy) const {
    return tanh_gradient(y, gy);
  }
};
struct SigmoidForward {
  template <class T>
  __device__ T operator()(T x) const {
    return sigmoid(x);
  }
};
struct SigmoidBackward {
  template <class T>
  __device__ T operator()(T y, T gy) const {
    return sigmoid_gradient(y, gy);
  }
};
struct SiluForward {
  template <class T>
  __device__ T operator()(T x) const {
    return silu(x);
  }
};
struct SiluBackward {
  template <class T>
  __device__ T operator()(T x, T gy) const {
    return silu_gradient(x, gy);
  }
};
struct BiasForward {
  template <class T>
  __device__ T operator()(T b, T x) const {
    return x + b;
  }
};
struct GeluForward {
  template <class T>
  __device__ T operator()(T z) const {
    return z * normal_at(z).below;
  }
  template <class T>
  __device__ T operator()(T b, T x) const {
    return (*this)(x + b);
  }
};
struct GeluGradient {
  template <class T>
  __device__ T at(T z, T gy) const {
    const Normal<T> n = normal_at(z);
    return gy * std::fma(z, n.density, n.below);
  }
  template <class T>
  __device__ T operator()(T z, T gy) const {
    return at(z, gy);
  }
  template <class T>
  __device__ T operator()(T b, T x, T gy) const {
    return at(x + b, gy);
  }
};
struct Same {
  __device__ float operator()(float x) const { return x; }
};

/// y = f(a...), element by element. A thread owns one pack, or one of the elements behind the last full pack.
template <class T, int V, class F, class... A>
__global__ void __launch_bounds__(kThreads) map_kernel(std::int64_t n, T* y, F f, const A*... a) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / V;
  if (i < packs) {
    const std::int64_t at = i * V;
    [&](const Values<Wider<A>, V>&... in) {
      Values<Wider<T>, V> out;
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = f(in[k]...);
      out.store(y + at);
    }(Values<Wider<A>, V>::load(a + at)...);
  } else if (const std::int64_t at = packs * V + (i - packs); at < n) {
    store(y[at], f(Wider<A>(a[at])...));
  }
}

template <class T, class F, class... A>
void map(CudaQueue& q, Where where, std::int64_t n, T* y, F f, const A*... a) {
  if (n == 0) return;
  using Narrowest = std::conditional_t<(std::is_same_v<A, bf16> || ...), bf16, T>;
  with_pack<Narrowest>(
      0,
      [&](auto v) {
        launch(q, where, map_kernel<T, v.value, F, A...>, blocks_for(n / v.value + n % v.value, kThreads),
               kThreads, 0, n, y, f, a...);
      },
      y, a...);
}

/// y = f(bias, a...), element by element. A thread owns one pack of columns in every blockDim.y-th row of a
/// chunk.
template <class T, int V, class F, class... A>
__global__ void __launch_bounds__(kColumnThreads)
    bias_kernel(std::int64_t rows, std::int64_t cols, std::int64_t chunk, T* y, F f, const Wider<T>* bias,
                const A*... a) {
  const ColumnThread<V> thread(rows, cols, chunk);
  if (!thread.active()) return;
  const auto b = Values<Wider<T>, V>::load(bias + thread.column);
  thread.each([&](std::int64_t at) {
    [&](const Values<Wider<A>, V>&... in) {
      Values<Wider<T>, V> out;
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = f(b[k], in[k]...);
      out.store(y + at);
    }(Values<Wider<A>, V>::load(a + at)...);
  });
}

template <class T, class F, class... A>
void map_with_bias(CudaQueue& q, Where where, std::int64_t rows, std::int64_t cols, T* y, F f,
                   const Wider<T>* bias, const A*... a) {
  if (rows * cols == 0) return;
  const auto start = [&](auto v) {
    const ColumnLaunch l(chunk_count(rows, cols), cols / v.value);
    launch(q, where, bias_kernel<T, v.value, F, A...>, l.grid, l.block, 0, rows, cols, chunk_rows(cols), y, f,
           bias, a...);
  };
  if constexpr (std::is_same_v<T, double>)
    start(std::integral_constant<int, 1>{});  // two at once do not fit into the registers
  else
    with_pack<T>(cols, start, y, bias, a...);
}

}  // namespace

template <class T>
void accumulate(CudaQueue& q, std::int64_t n, const T* x, T* y) {
  map(q, "accumulate", n, y, Sum{}, static_cast<const T*>(y), x);
}
template <class From, class To>
void convert(CudaQueue& q, std::int64_t n, const From* x, To* y) {
  map(q, "convert", n, y, Same{}, x);
}
template <class T>
void add_forward(CudaQueue& q, std::int64_t n, const T* a, const T* b, T* y) {
  map(q, "add_forward", n, y, Sum{}, a, b);
}
template <class T>
void add_relu_forward(CudaQueue& q, std::int64_t n, const T* a, const T* b, T* y) {
  map(q, "add_relu_forward", n, y, AddRelu{}, a, b);
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
void tanh_forward(CudaQueue& q, std::int64_t n, const T* x, T* y) {
  map(q, "tanh_forward", n, y, TanhForward{}, x);
}
template <class T>
void tanh_backward(CudaQueue& q, std::int64_t n, const T* y, const T* gy, T* gx) {
  map(q, "tanh_backward", n, gx, TanhBackward{}, y, gy);
}
template <class T>
void sigmoid_forward(CudaQueue& q, std::int64_t n, const T* x, T* y) {
  map(q, "sigmoid_forward", n, y, SigmoidForward{}, x);
}
template <class T>
void sigmoid_backward(CudaQueue& q, std::int64_t n, const T* y, const T* gy, T* gx) {
  map(q, "sigmoid_backward", n, gx, SigmoidBackward{}, y, gy);
}
template <class T>
void silu_forward(CudaQueue& q, std::int64_t n, const T* x, T* y) {
  map(q, "silu_forward", n, y, SiluForward{}, x);
}
template <class T>
void silu_backward(CudaQueue& q, std::int64_t n, const T* x, const T* gy, T* gx) {
  map(q, "silu_backward", n, gx, SiluBackward{}, x, gy);
}
template <class T>
void bias_forward(CudaQueue& q, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias,
                  T* y) {
  map_with_bias(q, "bias_forward", rows, cols, y, BiasForward{}, bias, x);
}
template <class T>
void gelu_forward(CudaQueue& q, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias,
                  T* y) {
  if (bias)
    map_with_bias(q, "gelu_forward", rows, cols, y, GeluForward{}, bias, x);
  else
    map(q, "gelu_forward", rows * cols, y, GeluForward{}, x);
}
template <class T>
void gelu_backward(CudaQueue& q, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias,
                   const T* gy, T* gx) {
  if (bias)
    map_with_bias(q, "gelu_backward", rows, cols, gx, GeluGradient{}, bias, x, gy);
  else
    map(q, "gelu_backward", rows * cols, gx, GeluGradient{}, x, gy);
}

template void convert<float, bf16>(CudaQueue&, std::int64_t, const float*, bf16*);
template void convert<bf16, float>(CudaQueue&, std::int64_t, const bf16*, float*);
template void accumulate<bf16>(CudaQueue&, std::int64_t, const bf16*, bf16*);
template void add_forward<bf16>(CudaQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void add_relu_forward<bf16>(CudaQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void relu_forward<bf16>(CudaQueue&, std::int64_t, const bf16*, bf16*);
template void relu_backward<bf16>(CudaQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void tanh_forward<bf16>(CudaQueue&, std::int64_t, const bf16*, bf16*);
template void tanh_backward<bf16>(CudaQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void bias_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, const bf16*, const float*, bf16*);
template void gelu_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, const bf16*, const float*, bf16*);
template void gelu_backward<bf16>(CudaQueue&, std::int64_t, std::int64_t, const bf16*, const float*,
                                  const bf16*, bf16*);
template void accumulate<float>(CudaQueue&, std::int64_t, const float*, float*);
template void accumulate<double>(CudaQueue&, std::int64_t, const double*, double*);
template void add_forward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void add_forward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void add_relu_forward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void relu_forward<float>(CudaQueue&, std::int64_t, const float*, float*);
template void add_relu_forward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void relu_forward<double>(CudaQueue&, std::int64_t, const double*, double*);
template void relu_backward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void relu_backward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void bias_forward<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, const float*, float*);
template void bias_forward<double>(CudaQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                   double*);
template void tanh_forward<float>(CudaQueue&, std::int64_t, const float*, float*);
template void tanh_forward<double>(CudaQueue&, std::int64_t, const double*, double*);
template void tanh_backward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void tanh_backward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void sigmoid_forward<float>(CudaQueue&, std::int64_t, const float*, float*);
template void sigmoid_forward<double>(CudaQueue&, std::int64_t, const double*, double*);
template void sigmoid_backward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void sigmoid_backward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void silu_forward<float>(CudaQueue&, std::int64_t, const float*, float*);
template void silu_forward<double>(CudaQueue&, std::int64_t, const double*, double*);
template void silu_backward<float>(CudaQueue&, std::int64_t, const float*, const float*, float*);
template void silu_backward<double>(CudaQueue&, std::int64_t, const double*, const double*, double*);
template void gelu_forward<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, const float*, float*);
template void gelu_forward<double>(CudaQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                   double*);
template void gelu_backward<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, const float*,
                                   const float*, float*);
template void gelu_backward<double>(CudaQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                    const double*, double*);

}  // namespace ssn::kernels
