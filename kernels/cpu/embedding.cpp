#include "kernels/embedding.h"

#include <algorithm>

#include "runtime/parallel.h"

namespace ssn::kernels {

template <class T>
void embedding_forward(CpuQueue&, std::int64_t count, std::int64_t, std::int64_t cols, const T* table,
                       const std::int32_t* ids, T* y) {
  parallel_for(count, 1 + 8192 / cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) std::copy_n(table + ids[i] * cols, cols, y + i * cols);
  });
}

template <class T>
void embedding_backward(CpuQueue&, std::int64_t count, std::int64_t, std::int64_t cols, const T* gy,
                        const std::int32_t* ids, Wider<T>* gtable) {
  // Each thread adds some of the columns of all rows: the same order, however many threads.
  parallel_for(cols, 1 + 8192 / std::max<std::int64_t>(1, count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < count; ++i) {
      Wider<T>* const to = gtable + ids[i] * cols;
      const T* const from = gy + i * cols;
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
    }
  });
}

void places(CpuQueue&, std::int64_t count, std::int64_t length, std::int32_t* ids) {
  for (std::int64_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(i % length);
}

template void embedding_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                      const std::int32_t*, bf16*);
template void embedding_backward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                       const std::int32_t*, float*);
template void embedding_forward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                       const std::int32_t*, float*);
template void embedding_forward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                        const std::int32_t*, double*);
template void embedding_backward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                        const std::int32_t*, float*);
template void embedding_backward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                         const std::int32_t*, double*);

}  // namespace ssn::kernels
