#pragma once
#include <cstdint>

#include "runtime/queue.h"

namespace ssn::kernels {

// Softmax cross-entropy with label smoothing s over rows of logits x (rows, classes), labels (rows):
//   loss[r] = −(1 − s) log p[r,label] − s / classes · Σ_c log p[r,c],   p = softmax(x)
// A negative label marks a row that takes no part: its loss and gradient are 0. A label of `classes` or more
// reads nothing and gives NaN.

/// loss (rows), and of each row what the backward pass takes p from, statistics (rows, 2): the largest logit
/// m and Σ_c exp(x[r,c] − m). Overwrites.
template <class T>
void cross_entropy_forward(CpuQueue&, std::int64_t rows, std::int64_t classes, double smoothing, const T* x,
                           const std::int32_t* labels, T* loss, T* statistics);
template <class T>
void cross_entropy_forward(CudaQueue&, std::int64_t rows, std::int64_t classes, double smoothing, const T* x,
                           const std::int32_t* labels, T* loss, T* statistics);
/// gx[r,c] = scale · *gloss · (p[r,c] − target[r,c]); gloss is one element: the gradient of scale · Σ
/// loss[r]. Overwrites.
template <class T>
void cross_entropy_backward(CpuQueue&, std::int64_t rows, std::int64_t classes, double smoothing,
                            double scale, const T* x, const T* statistics, const std::int32_t* labels,
                            const T* gloss, T* gx);
template <class T>
void cross_entropy_backward(CudaQueue&, std::int64_t rows, std::int64_t classes, double smoothing,
                            double scale, const T* x, const T* statistics, const std::int32_t* labels,
                            const T* gloss, T* gx);

/// How many classes come before the label's, by falling logits; of equal logits the lower class comes first.
/// A label whose logit is not a number comes behind all others, and so does one out of range: there `classes`
/// come before. Overwrites rank (rows).
template <class T>
void label_ranks(CpuQueue&, std::int64_t rows, std::int64_t classes, const T* x, const std::int32_t* labels,
                 T* rank);
template <class T>
void label_ranks(CudaQueue&, std::int64_t rows, std::int64_t classes, const T* x, const std::int32_t* labels,
                 T* rank);

/// *total = scale · Σ x[i], added in a fixed order. Overwrites.
template <class T>
void scaled_sum(CpuQueue&, std::int64_t n, double scale, const T* x, T* total);
template <class T>
void scaled_sum(CudaQueue&, std::int64_t n, double scale, const T* x, T* total);

}  // namespace ssn::kernels
