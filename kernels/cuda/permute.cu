#include "kernels/permute.h"

#include <numeric>

#include "kernels/cuda/columns.cuh"

namespace ssn::kernels {
namespace {

// A block owns a chunk of rows of what is written (and a part of its columns), a thread one pack of columns
// in every blockDim.y-th row of it.

/// y (rows, out) from x (rows, in).
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    pad_channels(std::int64_t rows, std::int64_t in, std::int64_t before, std::int64_t out,
                 std::int64_t chunk, const T* x, T* y) {
  const ColumnThread<V> thread(rows, out, chunk);
  const std::int64_t from = thread.column - before;
  const bool inside = from >= 0 && from < in;
  thread.each_row([&](std::int64_t row) {
    const auto pack = inside ? Pack<T, V>::load(x + row * in + from) : Pack<T, V>::filled(T(0));
    pack.store(y + thread.at(row));
  });
}

/// gx (rows, in) from gy (rows, out).
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    cut_channels(std::int64_t rows, std::int64_t in, std::int64_t before, std::int64_t out,
                 std::int64_t chunk, const T* gy, T* gx) {
  const ColumnThread<V> thread(rows, in, chunk);
  thread.each_row([&](std::int64_t row) {
    Pack<T, V>::load(gy + row * out + before + thread.column).store(gx + thread.at(row));
  });
}

}  // namespace

template <class T>
void pad_channels_forward(CudaQueue& q, std::int64_t rows, std::int64_t in, std::int64_t before,
                          std::int64_t out, const T* x, T* y) {
  with_pack<T>(
      std::gcd(std::gcd(in, before), out),
      [&](auto v) {
        const ColumnLaunch l(chunk_count(rows, out), out / v.value);
        launch(q, "pad_channels_forward", pad_channels<T, v.value>, l.grid, l.block, 0, rows, in, before, out,
               chunk_rows(out), x, y);
      },
      x, y);
}

template <class T>
void pad_channels_backward(CudaQueue& q, std::int64_t rows, std::int64_t in, std::int64_t before,
                           std::int64_t out, const T* gy, T* gx) {
  with_pack<T>(
      std::gcd(std::gcd(in, before), out),
      [&](auto v) {
        const ColumnLaunch l(chunk_count(rows, in), in / v.value);
        launch(q, "pad_channels_backward", cut_channels<T, v.value>, l.grid, l.block, 0, rows, in, before,
               out, chunk_rows(in), gy, gx);
      },
      gy, gx);
}

template void pad_channels_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                         const bf16*, bf16*);
template void pad_channels_backward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                          const bf16*, bf16*);
template void pad_channels_forward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                          const float*, float*);
template void pad_channels_forward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                           const double*, double*);
template void pad_channels_backward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                           const float*, float*);
template void pad_channels_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                            std::int64_t, const double*, double*);

}  // namespace ssn::kernels
