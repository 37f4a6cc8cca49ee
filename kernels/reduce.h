#pragma once
#include <algorithm>
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// Sums over the rows of a (rows, cols) matrix are taken chunk by chunk, the chunks' sums then added in their
/// order, so that they do not depend on the number of threads. A chunk has about 8192 elements, which gives a
/// GPU enough of them; the CPU takes several at once.
constexpr std::int64_t chunk_rows(std::int64_t cols) {
  return std::max<std::int64_t>(16, 8192 / std::max<std::int64_t>(1, cols));
}
constexpr std::int64_t chunk_count(std::int64_t rows, std::int64_t cols) {
  return (rows + chunk_rows(cols) - 1) / chunk_rows(cols);
}

/// Elements of workspace that column_sum needs.
constexpr std::int64_t column_sum_workspace(std::int64_t rows, std::int64_t cols) {
  return chunk_count(rows, cols) * cols;
}
/// y[c] += sum over r of x[r,c]; x is (rows, cols). Adds.
template <class T>
void column_sum(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, Wider<T>* y,
                Wider<T>* workspace);
template <class T>
void column_sum(CudaQueue&, std::int64_t rows, std::int64_t cols, const T* x, Wider<T>* y,
                Wider<T>* workspace);

}  // namespace ssn::kernels
