#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// Rows of a table (rows, cols) by their numbers, ids (count). On the GPU an id out of range, which the CPU's
// caller must have refused, gives a row of NaN and takes part in no gradient. On
// the CPU the rows may be bf16.

/// y[i,c] = table[ids[i],c]; y is (count, cols). Overwrites.
template <class T>
void embedding_forward(CpuQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* table,
                       const std::int32_t* ids, T* y);
template <class T>
void embedding_forward(CudaQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* table,
                       const std::int32_t* ids, T* y);
/// gtable[ids[i],c] += gy[i,c], i rising. Adds; of bf16 rows in f32.
template <class T>
void embedding_backward(CpuQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* gy,
                        const std::int32_t* ids, Wider<T>* gtable);
template <class T>
void embedding_backward(CudaQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* gy,
                        const std::int32_t* ids, T* gtable);

}  // namespace ssn::kernels
