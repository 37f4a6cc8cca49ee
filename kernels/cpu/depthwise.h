#pragma once
#include <cstddef>

#include "kernels/conv.h"

// Convolutions with g.is_depthwise(). Sizes are not zero. Same contract as kernels/conv.h, for f32 and bf16;
// arithmetic is f32, and the results have the same bits whatever the number of threads.
namespace ssn::kernels::depthwise {

std::size_t workspace(const ConvGeometry& g);
template <class T>
void forward(const ConvGeometry& g, const T* x, const float* weight, T* y, void* workspace);
template <class T>
void backward_data(const ConvGeometry& g, const T* gy, const float* weight, T* gx, void* workspace);
template <class T>
void backward_weight(const ConvGeometry& g, const T* x, const T* gy, float* gweight, void* workspace);

}  // namespace ssn::kernels::depthwise
