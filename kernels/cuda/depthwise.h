#pragma once
#include <cstddef>

#include "kernels/conv.h"

// Convolutions with g.is_depthwise(). Sizes are not zero. Same contract as kernels/conv.h.
namespace ssn::kernels::depthwise {

template <class T>
std::size_t workspace(CudaQueue&, const ConvGeometry& g);
template <class T>
void forward(CudaQueue&, const ConvGeometry& g, const T* x, const Wider<T>* weight, T* y, void* workspace);
template <class T>
void backward_data(CudaQueue&, const ConvGeometry& g, const T* gy, const Wider<T>* weight, T* gx,
                   void* workspace);
template <class T>
void backward_weight(CudaQueue&, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                     void* workspace);

}  // namespace ssn::kernels::depthwise
