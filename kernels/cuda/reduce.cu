#include "kernels/reduce.h"

#include "kernels/cuda/columns.cuh"

namespace ssn::kernels {
namespace {

/// A block owns a chunk of rows (and a part of the columns), a thread one pack of columns in every
/// blockDim.y-th row of it.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    chunk_sums_kernel(std::int64_t rows, std::int64_t cols, std::int64_t chunk, const T* x, Wider<T>* sums) {
  using W = Wider<T>;
  const ColumnThread<V> thread(rows, cols, chunk);
  auto sum = Values<W, V>::filled(0);
  thread.each([&](std::int64_t at) {
    const auto v = Values<W, V>::load(x + at);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += v[i];
  });
  const Values<W, V> total = column_reduce(sum);
  if (threadIdx.y == 0 && thread.active()) total.store(sums + blockIdx.x * cols + thread.column);
}

}  // namespace

template <class T>
void column_sum(CudaQueue& q, std::int64_t rows, std::int64_t cols, const T* x, Wider<T>* y,
                Wider<T>* workspace) {
  if (rows * cols == 0) return;
  const std::int64_t chunks = chunk_count(rows, cols);
  with_pack<T>(
      cols,
      [&](auto v) {
        const ColumnLaunch l(chunks, cols / v.value);
        launch(q, "column_sum", chunk_sums_kernel<T, v.value>, l.grid, l.block, 0, rows, cols,
               chunk_rows(cols), x, workspace);
      },
      x, workspace);
  sum_rows(q, "column_sum", chunks, cols, workspace, y, true);
}
template void column_sum<bf16>(CudaQueue&, std::int64_t, std::int64_t, const bf16*, float*, float*);
template void column_sum<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, float*, float*);
template void column_sum<double>(CudaQueue&, std::int64_t, std::int64_t, const double*, double*, double*);

}  // namespace ssn::kernels
