#pragma once
#include <cstdint>

#include "runtime/queue.h"

namespace ssn::kernels {

/// Elements of workspace that column_sum needs.
std::int64_t column_sum_workspace(std::int64_t rows, std::int64_t cols);
/// y[c] += sum over r of x[r,c]; x is (rows, cols). Fixed chunks of rows, added in their order. Adds.
template <class T>
void column_sum(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, T* y, T* workspace);
template <class T>
void column_sum(CudaQueue&, std::int64_t rows, std::int64_t cols, const T* x, T* y, T* workspace);

}  // namespace ssn::kernels
