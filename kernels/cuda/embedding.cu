#include "kernels/embedding.h"

#include <cmath>

#include "kernels/cuda/columns.cuh"

namespace ssn::kernels {
namespace {

/// A block owns kColumnThreads / blockDim.x rows of y (and a part of their columns), a thread a pack of one.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    gather_kernel(std::int64_t count, std::int64_t rows, std::int64_t cols, const T* table,
                  const std::int32_t* ids, T* y) {
  const ColumnThread<V> thread(count, cols, blockDim.y);
  thread.each_row([&](std::int64_t i) {
    const std::int64_t id = ids[i];
    const bool valid = id >= 0 && id < rows;
    const auto row = valid ? Pack<T, V>::load(table + id * cols + thread.column) : Pack<T, V>::filled(T(NAN));
    row.store(y + thread.at(i));
  });
}

constexpr int kScatterThreads = 256, kScatterWarps = kScatterThreads / kWarp;

/// The block of an id's first place owns `width` packs of its row of the table, and adds what all its places
/// give: thread t of them pack t % width of every height-th place.
template <class T, int V>
__global__ void __launch_bounds__(kScatterThreads)
    scatter_kernel(std::int64_t count, std::int64_t rows, std::int64_t cols, int width, const T* gy,
                   const std::int32_t* ids, Wider<T>* gtable) {
  using W = Wider<T>;
  __shared__ int counts[kScatterWarps], places[kScatterThreads];  // the tile's places of the id, rising
  __shared__ Values<W, V> sums[kScatterThreads];
  const std::int32_t id = ids[blockIdx.x];
  if (id < 0 || id >= rows) return;
  const int t = static_cast<int>(threadIdx.x), lane = t % kWarp, warp = t / kWarp;
  const int height = kScatterThreads / width, first = t / width;
  const std::int64_t column = (std::int64_t{blockIdx.y} * width + t % width) * V;
  const bool active = first < height && column < cols;
  auto sum = Values<W, V>::filled(0);
  for (std::int64_t tile = 0; tile < count; tile += kScatterThreads) {
    const bool found = tile + t < count && ids[tile + t] == id;
    const unsigned lanes = __ballot_sync(0xffffffffu, found);
    if (lane == 0) counts[warp] = __popc(lanes);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kScatterWarps; ++w) {
      before += w < warp ? counts[w] : 0;
      all += counts[w];
    }
    if (found) places[before + __popc(lanes & ((1u << lane) - 1))] = t;
    __syncthreads();
    if (all > 0 && tile + places[0] < blockIdx.x) return;  // another block's
    for (int i = first; i < all && active; i += height) {
      const auto v = Values<W, V>::load(gy + (tile + places[i]) * cols + column);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] += v[k];
    }
  }
  sums[t] = sum;
  __syncthreads();
  if (first > 0 || !active) return;
  auto total = Values<W, V>::load(gtable + id * cols + column);
  for (int h = 0; h < height; ++h) {
#pragma unroll
    for (int k = 0; k < V; ++k) total[k] += sums[h * width + t][k];
  }
  total.store(gtable + id * cols + column);
}

/// A thread owns an id.
__global__ void __launch_bounds__(kScatterThreads)
    places_kernel(std::int64_t count, std::int64_t length, std::int32_t* ids) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kScatterThreads + threadIdx.x;
  if (i < count) ids[i] = static_cast<std::int32_t>(i % length);
}

}  // namespace

template <class T>
void embedding_forward(CudaQueue& q, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* table,
                       const std::int32_t* ids, T* y) {
  if (count * cols == 0) return;
  with_pack<T>(
      cols,
      [&](auto v) {
        ColumnLaunch l(1, cols / v.value);
        l.grid.x = blocks_for(count, l.block.y);
        launch(q, "embedding_forward", gather_kernel<T, v.value>, l.grid, l.block, 0, count, rows, cols,
               table, ids, y);
      },
      table, y);
}
template <class T>
void embedding_backward(CudaQueue& q, std::int64_t count, std::int64_t rows, std::int64_t cols, const T* gy,
                        const std::int32_t* ids, Wider<T>* gtable) {
  if (count * cols == 0) return;
  with_pack<T>(
      cols,
      [&](auto v) {
        const std::int64_t packs = cols / v.value, width = packs < kScatterThreads ? packs : kScatterThreads;
        const dim3 grid(blocks_for(count, 1), blocks_for(packs, width));
        launch(q, "embedding_backward", scatter_kernel<T, v.value>, grid, kScatterThreads, 0, count, rows,
               cols, width, gy, ids, gtable);
      },
      gy, gtable);
}

void places(CudaQueue& q, std::int64_t count, std::int64_t length, std::int32_t* ids) {
  if (count == 0) return;
  launch(q, "places", places_kernel, blocks_for(count, kScatterThreads), kScatterThreads, 0, count, length,
         ids);
}

template void embedding_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                      const std::int32_t*, bf16*);
template void embedding_backward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                       const std::int32_t*, float*);
template void embedding_forward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                       const std::int32_t*, float*);
template void embedding_forward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                        const std::int32_t*, double*);
template void embedding_backward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                        const std::int32_t*, float*);
template void embedding_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                         const std::int32_t*, double*);

}  // namespace ssn::kernels
