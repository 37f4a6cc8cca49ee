#pragma once
#include <cstdint>
#include <span>

#include "runtime/queue.h"

namespace ssn::kernels {

/// How one layer's K coefficients come from what is trained (paper section 3.2.1, "Emb"):
///   z = W phi + b          with a projection: phi (E) is the layer's embedding, W (K, E), b (K)
///   z = phi                without one: E = K
///   alpha = softmax(z) or z
template <class T>
struct LayerCoefficients {
  std::int64_t count, embedding;  // K, E
  bool softmax;
  const T *phi, *projection, *bias;  // projection and bias: both or neither
  T* alpha;                          // forward writes it, backward reads it
  const T* alpha_grad;               // backward reads it
  T *phi_grad, *projection_grad,
      *bias_grad;  // backward adds into them, each unless null; layers may share them
};

/// Bytes of plain data that the functions below need for `layers` layers, on the queue's device.
template <class T>
std::int64_t coefficients_workspace(std::int64_t layers) {
  return layers * static_cast<std::int64_t>(sizeof(LayerCoefficients<T>));
}

template <class T>
void coefficients_forward(CpuQueue&, std::span<const LayerCoefficients<T>> layers, void* plain);
template <class T>
void coefficients_forward(CudaQueue&, std::span<const LayerCoefficients<T>> layers, void* plain);

/// Each layer's contribution is added at once, in the order of the list: one call for a list gives the same
/// bits as one call a layer.
template <class T>
void coefficients_backward(CpuQueue&, std::span<const LayerCoefficients<T>> layers, void* plain);
template <class T>
void coefficients_backward(CudaQueue&, std::span<const LayerCoefficients<T>> layers, void* plain);

}  // namespace ssn::kernels
