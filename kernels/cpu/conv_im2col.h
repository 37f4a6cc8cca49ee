#pragma once
#include <cstddef>

#include "kernels/conv.h"

// Convolutions of doubles: patches of one image laid out as rows of a matrix (pixels, c/groups · kh · kw),
// then gemm. Sizes are not zero. Same contract as kernels/conv.h.
namespace ssn::kernels::im2col {

std::size_t workspace(const ConvGeometry& g);
void forward(const ConvGeometry& g, const double* x, const double* weight, double* y, double* patches);
void backward_data(const ConvGeometry& g, const double* gy, const double* weight, double* gx,
                   double* patches);
void backward_weight(const ConvGeometry& g, const double* x, const double* gy, double* gweight,
                     double* patches);

}  // namespace ssn::kernels::im2col
