#pragma once
#include "kernels/conv.h"

// Convolutions by simple loops, each sum in f64 and in a fixed order, without a workspace: for f64, and for
// geometries that cuDNN has no deterministic way for. Sizes are not zero. Same contract as kernels/conv.h.
namespace ssn::kernels::direct {

template <class T>
void forward(CudaQueue&, const ConvGeometry& g, const T* x, const T* weight, T* y);
template <class T>
void backward_data(CudaQueue&, const ConvGeometry& g, const T* gy, const T* weight, T* gx);
template <class T>
void backward_weight(CudaQueue&, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight);

}  // namespace ssn::kernels::direct
