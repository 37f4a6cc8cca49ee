#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cudnn.h"

// The engines of cuDNN's double: what they say of themselves, and what they compute.
namespace cuda_on_host {

/// Dimensions in the order n, c, h, w; of a weight: outputs, channels of a group, window.
struct ConvTensor {
  std::int64_t uid, alignment;
  cudnnDataType_t type;
  std::array<std::int64_t, 4> dims, strides;

  std::int64_t size() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  std::size_t element() const { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * element(); }
  auto operator<=>(const ConvTensor&) const = default;
};
/// A convolution, or one of its gradients.
struct Convolution {
  cudnnBackendDescriptorType_t pass;
  ConvTensor x, weight, y;
  std::array<std::int64_t, 2> padding, stride, dilation;

  std::int64_t groups() const { return x.dims[1] / weight.dims[1]; }
  auto operator<=>(const Convolution&) const = default;
};

/// In the order in which they are offered. Who takes one of the first four has not looked at its notes, its
/// workspace or the plan's status: the result is wrong in every run in another way, or coarse.
enum class Engine { nondeterministic, down_converting, hungry, broken, tensor_core, exact };

/// By the heuristics' mode; none for dilated convolutions with groups.
std::vector<Engine> engines_for(const Convolution& c, cudnnBackendHeurMode_t mode);
std::vector<cudnnBackendNumericalNote_t> notes_of(Engine engine);
std::size_t workspace_of(Engine engine, const Convolution& c);
/// Each sum is of doubles, and rounded once. The workspace is written: with what is no number.
void compute(Engine engine, const Convolution& c, const void* x, const void* weight, const void* y,
             void* workspace);

}  // namespace cuda_on_host
