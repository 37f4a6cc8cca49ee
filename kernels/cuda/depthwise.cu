#include "kernels/cuda/depthwise.h"

#include <algorithm>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/conv_axis.cuh"
#include "kernels/weight_format.h"

namespace ssn::kernels::depthwise {
namespace {

constexpr int kStrip = 4;   // outputs side by side of a thread: a weight is read once for them
constexpr int kTaps = 4;    // of a row of the window, whose gradients a thread adds up together
constexpr int kBlocks = 3;  // of a multiprocessor: the compiler would else spill to make room for more

/// V values in the type that is computed in, from V elements of T or of W itself.
template <class W, int V>
struct Values {
  W v[V];

  template <class T>
  __device__ static Values load(const T* from) {
    constexpr int kEach = V < kPack<T> ? V : kPack<T>;
    Values values;
#pragma unroll
    for (int i = 0; i < V; i += kEach) {
      const Pack<T, kEach> pack = Pack<T, kEach>::load(from + i);
#pragma unroll
      for (int k = 0; k < kEach; ++k) values.v[i + k] = static_cast<W>(pack[k]);
    }
    return values;
  }
};

/// What a place that is written takes by a tap: of y when gx is, else of x.
template <bool kAdjoint>
__device__ int source(const ConvAxis& axis, int at, int tap) {
  return kAdjoint ? axis.y_of(at, tap) : axis.x_of(at, tap);
}

/// y from x, or (kAdjoint) gx from gy; weight (taps, c). A thread owns kStrip places of one row of what it
/// writes, and one pack of channels: blockIdx.x and threadIdx.y count strips, blockIdx.y and threadIdx.x
/// packs.
template <class T, int V, bool kAdjoint>
__global__ void __launch_bounds__(kColumnThreads, kBlocks)
    gather_kernel(ConvAxis rows, ConvAxis cols, std::int64_t n, std::int64_t c, const T* x,
                  const Wider<T>* weight, T* y) {
  using W = Wider<T>;
  const int height = kAdjoint ? rows.x : rows.y, width = kAdjoint ? cols.x : cols.y;
  const int from_height = kAdjoint ? rows.y : rows.x, from_width = kAdjoint ? cols.y : cols.x;
  const int strips = (width + kStrip - 1) / kStrip;
  const std::int64_t channel = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * V;
  const std::int64_t strip = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y, row = strip / strips;
  if (channel >= c || row >= n * height) return;
  const int first = static_cast<int>(strip % strips) * kStrip, h = static_cast<int>(row % height);
  W sums[kStrip][V] = {};
  for (int i = 0; i < rows.taps; ++i) {
    const int from_row = source<kAdjoint>(rows, h, i);
    if (from_row < 0) continue;
    const T* const from = x + (row / height * from_height + from_row) * from_width * c + channel;
    for (int j = 0; j < cols.taps; ++j) {
      const auto w = Values<W, V>::load(weight + (i * cols.taps + j) * c + channel);
#pragma unroll
      for (int k = 0; k < kStrip; ++k) {
        const int at = first + k < width ? source<kAdjoint>(cols, first + k, j) : -1;
        if (at < 0) continue;
        const auto value = Values<W, V>::load(from + at * c);
#pragma unroll
        for (int e = 0; e < V; ++e) sums[k][e] = fma(value.v[e], w.v[e], sums[k][e]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kStrip; ++k) {
    if (first + k >= width) break;
    Pack<T, V> result;
#pragma unroll
    for (int e = 0; e < V; ++e) store(result[e], sums[k][e]);
    result.store(y + (row * width + first + k) * c + channel);
  }
}

/// parts (chunks, c, taps): a chunk's part of gweight. A block owns a chunk of y's pixels, a part of the
/// channels and, by blockIdx.z, kTaps taps of one row of the window; a thread one pack of channels.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, kBlocks)
    weight_gradient_kernel(ConvAxis rows, ConvAxis cols, std::int64_t n, std::int64_t c, std::int64_t chunk,
                           const T* x, const T* gy, Wider<T>* parts) {
  using W = Wider<T>;
  constexpr int kEach = V < kPack<W> ? V : kPack<W>;
  const int groups = (cols.taps + kTaps - 1) / kTaps;
  const int i = static_cast<int>(blockIdx.z) / groups, first = static_cast<int>(blockIdx.z) % groups * kTaps;
  const ColumnThread<V> thread(n * rows.y * cols.y, c, chunk);
  W sums[kTaps][V] = {};
  for (std::int64_t p = thread.first; p < thread.end && thread.active(); p += blockDim.y) {
    const std::int64_t row = p / cols.y;
    const int h = rows.x_of(static_cast<int>(row % rows.y), i), col = static_cast<int>(p % cols.y);
    if (h < 0) continue;
    const T* const from = x + (row / rows.y * rows.x + h) * cols.x * c + thread.column;
    const auto g = Values<W, V>::load(gy + thread.at(p));
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      const int at = first + t < cols.taps ? cols.x_of(col, first + t) : -1;
      if (at < 0) continue;
      const auto value = Values<W, V>::load(from + at * c);
#pragma unroll
      for (int e = 0; e < V; ++e) sums[t][e] = fma(g.v[e], value.v[e], sums[t][e]);
    }
  }
  const std::int64_t taps = std::int64_t{rows.taps} * cols.taps;
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
#pragma unroll
    for (int e = 0; e < V; e += kEach) {
      kernels::Values<W, kEach> part;
#pragma unroll
      for (int k = 0; k < kEach; ++k) part[k] = sums[t][e + k];
      const kernels::Values<W, kEach> total = column_reduce(part);
      if (threadIdx.y > 0 || !thread.active() || first + t >= cols.taps) continue;
#pragma unroll
      for (int k = 0; k < kEach; ++k)
        parts[(blockIdx.x * c + thread.column + e + k) * taps + i * cols.taps + first + t] = total[k];
    }
  }
}

/// How y's pixels are divided, whatever the device: so that a block has enough to do, and the second stage
/// little.
struct Chunks {
  std::int64_t pixels, count;

  explicit Chunks(const ConvGeometry& g) {
    constexpr std::int64_t kMost = 512, kLeast = 64, kElements = 16 << 10;
    const std::int64_t all = g.n * g.out_h() * g.out_w();
    pixels = std::max({(all + kMost - 1) / kMost, kLeast, kElements / g.c});
    count = (all + pixels - 1) / pixels;
  }
};

std::int64_t taps_of(const ConvGeometry& g) {
  return g.kh * g.kw;
}

template <class T, bool kAdjoint>
void gather(CudaQueue& q, Where where, const ConvGeometry& g, const T* x, const Wider<T>* weight, T* y,
            void* workspace) {
  auto* const filters = static_cast<Wider<T>*>(workspace);
  to_channels_last(q, 1, g.c, taps_of(g), weight, filters);
  const std::int64_t height = kAdjoint ? g.h : g.out_h(), width = kAdjoint ? g.w : g.out_w();
  with_pack<T>(
      g.c,
      [&](auto v) {
        ColumnLaunch l(1, g.c / v.value);
        l.grid.x = blocks_for(g.n * height * ((width + kStrip - 1) / kStrip), l.block.y);
        launch(q, where, gather_kernel<T, v.value, kAdjoint>, l.grid, l.block, 0, ConvAxis(g, 0),
               ConvAxis(g, 1), g.n, g.c, x, filters, y);
      },
      x, y);
}

}  // namespace

template <class T>
std::size_t workspace(CudaQueue&, const ConvGeometry& g) {
  return static_cast<std::size_t>(Chunks(g).count * g.c * taps_of(g)) * sizeof(Wider<T>);
}

template <class T>
void forward(CudaQueue& q, const ConvGeometry& g, const T* x, const Wider<T>* weight, T* y, void* workspace) {
  gather<T, false>(q, "conv_forward", g, x, weight, y, workspace);
}

template <class T>
void backward_data(CudaQueue& q, const ConvGeometry& g, const T* gy, const Wider<T>* weight, T* gx,
                   void* workspace) {
  gather<T, true>(q, "conv_backward_data", g, gy, weight, gx, workspace);
}

template <class T>
void backward_weight(CudaQueue& q, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                     void* workspace) {
  const Chunks chunks(g);
  auto* const parts = static_cast<Wider<T>*>(workspace);
  with_pack<T>(
      g.c,
      [&](auto v) {
        ColumnLaunch l(chunks.count, g.c / v.value);
        l.grid.z = static_cast<unsigned>(g.kh * ((g.kw + kTaps - 1) / kTaps));
        launch(q, "conv_backward_weight", weight_gradient_kernel<T, v.value>, l.grid, l.block, 0,
               ConvAxis(g, 0), ConvAxis(g, 1), g.n, g.c, chunks.pixels, x, gy, parts);
      },
      x, gy);
  sum_rows(q, "conv_backward_weight", chunks.count, g.c * taps_of(g), parts, gweight, false);
}

template std::size_t workspace<bf16>(CudaQueue&, const ConvGeometry&);
template std::size_t workspace<float>(CudaQueue&, const ConvGeometry&);
template std::size_t workspace<double>(CudaQueue&, const ConvGeometry&);
template void forward<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const float*, bf16*, void*);
template void forward<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*, void*);
template void forward<double>(CudaQueue&, const ConvGeometry&, const double*, const double*, double*, void*);
template void backward_data<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const float*, bf16*, void*);
template void backward_data<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*,
                                   void*);
template void backward_data<double>(CudaQueue&, const ConvGeometry&, const double*, const double*, double*,
                                    void*);
template void backward_weight<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const bf16*, float*, void*);
template void backward_weight<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*,
                                     void*);
template void backward_weight<double>(CudaQueue&, const ConvGeometry&, const double*, const double*, double*,
                                      void*);

}  // namespace ssn::kernels::depthwise
