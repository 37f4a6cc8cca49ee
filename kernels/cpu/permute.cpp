#include "kernels/permute.h"

#include <algorithm>

#include "runtime/bf16.h"
#include "runtime/parallel.h"

namespace ssn::kernels {

template <class T>
void pad_channels_forward(CpuQueue&, std::int64_t rows, std::int64_t in, std::int64_t before,
                          std::int64_t out, const T* x, T* y) {
  parallel_for(rows, 4096 / out + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::fill_n(y + r * out, out, T(0));
      std::copy_n(x + r * in, in, y + r * out + before);
    }
  });
}

template <class T>
void pad_channels_backward(CpuQueue&, std::int64_t rows, std::int64_t in, std::int64_t before,
                           std::int64_t out, const T* gy, T* gx) {
  parallel_for(rows, 4096 / out + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) std::copy_n(gy + r * out + before, in, gx + r * in);
  });
}

template void pad_channels_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                         const bf16*, bf16*);
template void pad_channels_backward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                          const bf16*, bf16*);
template void pad_channels_forward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                          const float*, float*);
template void pad_channels_forward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                           const double*, double*);
template void pad_channels_backward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                           const float*, float*);
template void pad_channels_backward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                            const double*, double*);

}  // namespace ssn::kernels
