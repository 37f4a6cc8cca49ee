#pragma once
#include <cstdint>
#include <span>

#include "kernels/weight_format.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// How one layer's weight (n elements, row-major) is made of its group's theta (N elements), paper
/// section 3.2:
///   templates  w[i] = Σ_k alpha[k] · theta[offsets[k] + i]        coefficients = alpha (templates)
///   exact      w[i] = theta[offsets[0] + i]                       templates = 1, no coefficients
///   tiles      w[t·tile + p] = theta[p] · (t ? mask[t − 1][p mod window] : 1), p < tile
///                                                                 coefficients = mask (tiles − 1, window),
///                                                                 or none: every mask is 1
/// and all of that times `gain`.
/// Offsets of different layers, and of one layer's templates, may overlap anyhow. Sums over k are chains of
/// fused multiply-adds, k ascending.
template <class T>
struct GeneratedLayer {
  enum class Method { templates, exact, tiles };
  Method method;
  std::int64_t n;
  int templates = 1;                      // K_i; the length of offsets
  const std::int64_t* offsets = nullptr;  // host memory, method templates and exact
  std::int64_t window = 0;                // method tiles
  const T* coefficients = nullptr;
  void* weight = nullptr;          // forward writes it; of T, or bf16
  const T* weight_grad = nullptr;  // backward reads it
  T* coefficients_grad = nullptr;  // backward adds into it unless null; layers may share it
  std::int64_t tile = 0;           // method tiles: at most N; 0: N
  T gain = 1;
  bool half = false;  // T = float: the weight is bf16, each element rounded once, behind its sum
  // Both above 1: the weight and its gradient have the channels last, w[(o·channels + c)·taps + t] lies at
  // (o·taps + t)·channels + c.
  std::int64_t channels = 1, taps = 1;

  bool is_reordered() const { return channels > 1 && taps > 1; }
};

/// Elements of T and bytes of plain data that the functions below need for these layers.
struct GenerateWorkspace {
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
};
template <class T>
GenerateWorkspace generate_workspace(CpuQueue&, std::span<const GeneratedLayer<T>> layers,
                                     std::int64_t group_size);
template <class T>
GenerateWorkspace generate_workspace(CudaQueue&, std::span<const GeneratedLayer<T>> layers,
                                     std::int64_t group_size);

/// Writes every layer's weight. `plain` is workspace of `bytes` on the queue's device, aligned to 16 (CUDA
/// copies the list there).
template <class T>
void generate_forward(CpuQueue&, std::span<const GeneratedLayer<T>> layers, std::int64_t group_size,
                      const T* theta, void* plain);
template <class T>
void generate_forward(CudaQueue&, std::span<const GeneratedLayer<T>> layers, std::int64_t group_size,
                      const T* theta, void* plain);

/// Adds the layers' weight gradients into theta_grad (N) and the coefficients' gradients. Each element of
/// theta_grad receives its contributions in the order of the list, each by one fused multiply-add (within
/// one layer: k or t ascending). Coefficients' gradients: sums over fixed parts of theta, these in their
/// order, a layer's whole added at once, in the order of the list. So one call for a list gives the same
/// bits as one call a layer in that order, on any number of threads; but on CUDA the parts are chosen for the
/// list, and coefficients' gradients agree to rounding. Elements that no layer of the list uses are not
/// written: they may be summed over the ranks meanwhile.
template <class T>
void generate_backward(CpuQueue&, std::span<const GeneratedLayer<T>> layers, std::int64_t group_size,
                       const T* theta, T* theta_grad, T* workspace, void* plain);
template <class T>
void generate_backward(CudaQueue&, std::span<const GeneratedLayer<T>> layers, std::int64_t group_size,
                       const T* theta, T* theta_grad, T* workspace, void* plain);

}  // namespace ssn::kernels
