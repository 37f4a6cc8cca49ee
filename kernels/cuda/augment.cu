#include "kernels/augment.h"
#include "kernels/augment_terms.h"
#include "kernels/cuda/columns.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256, kPacks = 4;  // of a thread, so that a block's draws serve enough values

/// A block owns one of the `parts` of an image, a thread every kThreads-th pack of it. A pack lies within a
/// row. What it reads is as wide as a byte: it starts anywhere, and backwards where the image is mirrored; a
/// warp reads whole lines all the same.
template <int V>
__global__ void __launch_bounds__(kThreads)
    augment_kernel(AugmentRule rule, int parts, const std::uint8_t* x, const std::int32_t* samples,
                   const float* mean, const float* std, float* y) {
  __shared__ ImageChange change;
  const std::int64_t image = blockIdx.x / parts;
  if (threadIdx.x == 0) {
    const ImageChange drawn =
        draw_change(rule, samples[image]);  // not into `change`: unseen by the race check
    change = drawn;
  }
  __syncthreads();
  const int h = static_cast<int>(rule.h), w = static_cast<int>(rule.w), c = static_cast<int>(rule.c),
            row_size = w * c, size = h * row_size;
  const int first = static_cast<int>(blockIdx.x % parts) * kThreads * kPacks + static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = 0; i < kPacks; ++i) {
    const int pack = first + i * kThreads;
    if (pack >= size / V) return;
    const int line = pack * V / row_size, at = pack * V - line * row_size, from = line + change.dy;
    const bool inside = from >= 0 && from < h, cut = line >= change.top && line < change.bottom;
    const std::uint8_t* in = x + image * size + (inside ? from * row_size : 0);
    const auto m = Values<float, V>::load(mean + at), s = Values<float, V>::load(std + at);
    Values<float, V> out;
    int column = at / c, channel = at - column * c;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const bool seen = inside && column + change.dx >= 0 && column + change.dx < w;
      const std::uint8_t value = seen ? in[change.source(column, w) * c + channel] : std::uint8_t{0};
      const bool blank = cut && column >= change.left && column < change.right;
      out[k] = blank ? 0.0f : normalised(value, m[k], s[k]);
      if (++channel == c) channel = 0, ++column;
    }
    out.store(y + image * size + pack * V);
  }
}

}  // namespace

void augment(CudaQueue& q, std::int64_t n, const AugmentRule& rule, const std::uint8_t* x,
             const std::int32_t* samples, const float* mean, const float* std, float* y) {
  if (n == 0) return;
  const std::int64_t row_size = rule.w * rule.c;
  with_pack<float>(
      row_size,
      [&](auto v) {
        const auto parts = blocks_for(rule.h * row_size / v.value, kThreads * kPacks);
        launch(q, "augment", augment_kernel<v.value>, static_cast<unsigned>(n) * parts, kThreads, 0, rule,
               static_cast<int>(parts), x, samples, mean, std, y);
      },
      mean, std, y);
}

}  // namespace ssn::kernels
