#include "kernels/cuda/direct_conv.h"

#include "kernels/cuda/conv_axis.cuh"
#include "runtime/cuda/launch.cuh"

namespace ssn::kernels::direct {
namespace {

constexpr int kThreads = 256;

/// Counts within one group of channels, the two axes, and the order of the weight.
struct Sizes {
  ConvAxis rows, cols;
  std::int64_t n, c, o, groups;
  bool channels_last;

  Sizes(const ConvGeometry& g, const WeightFormat& format)
      : rows(g, 0),
        cols(g, 1),
        n(g.n),
        c(g.c / g.groups),
        o(g.o / g.groups),
        groups(g.groups),
        channels_last(format.channels_last) {}

  __device__ std::int64_t x_at(std::int64_t image, int row, int col, std::int64_t channel) const {
    return ((image * rows.x + row) * cols.x + col) * c * groups + channel;
  }
  __device__ std::int64_t y_at(std::int64_t image, int row, int col, std::int64_t output) const {
    return ((image * rows.y + row) * cols.y + col) * o * groups + output;
  }
  __device__ std::int64_t weight_at(std::int64_t output, std::int64_t channel, int i, int j) const {
    if (channels_last) return ((output * rows.taps + i) * cols.taps + j) * c + channel;
    return ((output * c + channel) * rows.taps + i) * cols.taps + j;
  }
};

/// A place in x or y, from its index.
struct Place {
  std::int64_t channel, image;
  int row, col;

  __device__ Place(std::int64_t index, int rows, int cols, std::int64_t channels)
      : channel(index % channels),
        image(index / channels / cols / rows),
        row(static_cast<int>(index / channels / cols % rows)),
        col(static_cast<int>(index / channels % cols)) {}
};

/// A thread owns one element of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Sizes s, std::int64_t size, const T* x, const T* weight, T* y) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= size) return;
  const Place p(index, s.rows.y, s.cols.y, s.o * s.groups);
  const std::int64_t first = p.channel / s.o * s.c;
  double sum = 0;
  for (int i = 0; i < s.rows.taps; ++i)
    for (int j = 0; j < s.cols.taps; ++j) {
      const int row = s.rows.x_of(p.row, i), col = s.cols.x_of(p.col, j);
      if (row < 0 || col < 0) continue;
      const T* const from = x + s.x_at(p.image, row, col, first);
      for (std::int64_t c = 0; c < s.c; ++c)
        sum += static_cast<double>(from[c]) * static_cast<double>(weight[s.weight_at(p.channel, c, i, j)]);
    }
  store(y[index], static_cast<Wider<T>>(sum));
}

/// A thread owns one element of gx.
template <class T>
__global__ void __launch_bounds__(kThreads)
    data_kernel(Sizes s, std::int64_t size, const T* gy, const T* weight, T* gx) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= size) return;
  const Place p(index, s.rows.x, s.cols.x, s.c * s.groups);
  const std::int64_t first = p.channel / s.c * s.o, within = p.channel % s.c;
  double sum = 0;
  for (int i = 0; i < s.rows.taps; ++i)
    for (int j = 0; j < s.cols.taps; ++j) {
      const int row = s.rows.y_of(p.row, i), col = s.cols.y_of(p.col, j);
      if (row < 0 || col < 0) continue;
      const T* const from = gy + s.y_at(p.image, row, col, first);
      for (std::int64_t o = 0; o < s.o; ++o)
        sum +=
            static_cast<double>(from[o]) * static_cast<double>(weight[s.weight_at(first + o, within, i, j)]);
    }
  store(gx[index], static_cast<Wider<T>>(sum));
}

/// A thread owns one element of gweight.
template <class T>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(Sizes s, std::int64_t size, const T* x, const T* gy, Wider<T>* gweight) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= size) return;
  const std::int64_t taps = std::int64_t{s.rows.taps} * s.cols.taps, output = index / taps / s.c;
  const std::int64_t channel = output / s.o * s.c + index / taps % s.c;
  const int i = static_cast<int>(index % taps / s.cols.taps), j = static_cast<int>(index % s.cols.taps);
  double sum = 0;
  for (std::int64_t image = 0; image < s.n; ++image)
    for (int row = 0; row < s.rows.y; ++row)
      for (int col = 0; col < s.cols.y; ++col) {
        const int h = s.rows.x_of(row, i), w = s.cols.x_of(col, j);
        if (h < 0 || w < 0) continue;
        sum += static_cast<double>(x[s.x_at(image, h, w, channel)]) *
               static_cast<double>(gy[s.y_at(image, row, col, output)]);
      }
  gweight[s.weight_at(output, index / taps % s.c, i, j)] = static_cast<Wider<T>>(sum);
}

}  // namespace

template <class T>
void forward(CudaQueue& q, const ConvGeometry& g, const T* x, const T* weight, T* y) {
  launch(q, "conv_forward", forward_kernel<T>, blocks_for(g.y_size(), kThreads), kThreads, 0,
         Sizes(g, conv_weight_format<T>(q, g)), g.y_size(), x, weight, y);
}
template <class T>
void backward_data(CudaQueue& q, const ConvGeometry& g, const T* gy, const T* weight, T* gx) {
  launch(q, "conv_backward_data", data_kernel<T>, blocks_for(g.x_size(), kThreads), kThreads, 0,
         Sizes(g, conv_weight_format<T>(q, g)), g.x_size(), gy, weight, gx);
}
template <class T>
void backward_weight(CudaQueue& q, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight) {
  launch(q, "conv_backward_weight", weight_kernel<T>, blocks_for(g.weight_size(), kThreads), kThreads, 0,
         Sizes(g, conv_weight_format<T>(q, g)), g.weight_size(), x, gy, gweight);
}

template void forward<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const bf16*, bf16*);
template void forward<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*);
template void forward<double>(CudaQueue&, const ConvGeometry&, const double*, const double*, double*);
template void backward_data<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const bf16*, bf16*);
template void backward_data<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*);
template void backward_data<double>(CudaQueue&, const ConvGeometry&, const double*, const double*, double*);
template void backward_weight<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const bf16*, float*);
template void backward_weight<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*);
template void backward_weight<double>(CudaQueue&, const ConvGeometry&, const double*, const double*, double*);

}  // namespace ssn::kernels::direct
