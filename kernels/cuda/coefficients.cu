#include "kernels/coefficients_terms.h"
#include "kernels/cuda/upload.cuh"
#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 128;

/// A block owns a layer; a thread some of its coefficients.
template <class T>
__global__ void __launch_bounds__(kThreads) make_coefficients(const LayerCoefficients<T>* layers) {
  const LayerCoefficients<T> l = layers[blockIdx.x];
  double most = 0, sum = 0;
  if (l.softmax) {
    for (std::int64_t k = 0; k < l.count; ++k) {
      const double z = coefficient_logit(l, k);
      most = k == 0 || z > most ? z : most;
    }
    for (std::int64_t k = 0; k < l.count; ++k) sum += exp(coefficient_logit(l, k) - most);
  }
  for (std::int64_t k = threadIdx.x; k < l.count; k += kThreads) {
    const double z = coefficient_logit(l, k);
    l.alpha[k] = static_cast<T>(l.softmax ? exp(z - most) / sum : z);
  }
}

/// One block walks the layers in the order of the list, since they may share a projection. A thread owns
/// columns of W with their elements of phi, and elements of b.
template <class T>
__global__ void __launch_bounds__(kThreads)
    carry_back(std::int64_t count, const LayerCoefficients<T>* layers) {
  for (std::int64_t i = 0; i < count; ++i) {
    const LayerCoefficients<T> l = layers[i];
    const double mean = coefficient_mean_grad(l);
    for (std::int64_t e = threadIdx.x; e < l.embedding; e += kThreads) add_embedding_grad(l, mean, e);
    for (std::int64_t k = threadIdx.x; k < l.count; k += kThreads) add_bias_grad(l, mean, k);
    __syncthreads();  // layers of different sizes may share memory in any way
  }
}

}  // namespace

template <class T>
void coefficients_forward(CudaQueue& q, std::span<const LayerCoefficients<T>> layers, void* plain) {
  if (layers.empty()) return;
  const auto* list = upload(q, layers.data(), layers.size(), plain);
  launch(q, "coefficients_forward", make_coefficients<T>, static_cast<unsigned>(layers.size()), kThreads, 0,
         list);
}
template <class T>
void coefficients_backward(CudaQueue& q, std::span<const LayerCoefficients<T>> layers, void* plain) {
  if (layers.empty()) return;
  const auto* list = upload(q, layers.data(), layers.size(), plain);
  launch(q, "coefficients_backward", carry_back<T>, 1, kThreads, 0, layers.size(), list);
}

template void coefficients_forward(CudaQueue&, std::span<const LayerCoefficients<float>>, void*);
template void coefficients_forward(CudaQueue&, std::span<const LayerCoefficients<double>>, void*);
template void coefficients_backward(CudaQueue&, std::span<const LayerCoefficients<float>>, void*);
template void coefficients_backward(CudaQueue&, std::span<const LayerCoefficients<double>>, void*);

}  // namespace ssn::kernels
