#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// Rows of a table (rows, cols) by their numbers, ids (count). On the GPU an id out of range, which the CPU's
// caller must have refused, gives a row of NaN and takes part in no gradient. The rows may be bf16.

/// y[i,c] = table[ids[i],c]; y is (count, cols). Overwrites.
template <class T>
void embedding_forward(CpuQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* table,
                       const std::int32_t* ids, T* y);
template <class T>
void embedding_forward(CudaQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* table,
                       const std::int32_t* ids, T* y);
/// gtable[ids[i],c] += Σ gy[i,c], in an order that follows from the ids. Adds; of bf16 rows in f32.
template <class T>
void embedding_backward(CpuQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* gy,
                        const std::int32_t* ids, Wider<T>* gtable);
template <class T>
void embedding_backward(CudaQueue&, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* gy,
                        const std::int32_t* ids, Wider<T>* gtable);

/// ids[i] = i mod length, for `count` of them: the places of sequences one after another. Overwrites.
void places(CpuQueue&, std::int64_t count, std::int64_t length, std::int32_t* ids);
void places(CudaQueue&, std::int64_t count, std::int64_t length, std::int32_t* ids);

}  // namespace ssn::kernels
