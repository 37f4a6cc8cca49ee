#include "kernels/cpu/conv_im2col.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "runtime/parallel.h"

namespace ssn::kernels::im2col {
namespace {

/// Sizes of one image and one group of channels.
struct Part {
  explicit Part(const ConvGeometry& g)
      : pixels(g.out_h() * g.out_w()), c(g.c / g.groups), o(g.o / g.groups), patch(c * g.kh * g.kw) {}
  std::int64_t pixels, c, o, patch;
};

/// f(h, w, tap) for every tap of output pixel `pixel` that lies inside the image; tap counts within (kh, kw).
template <class F>
void for_taps(const ConvGeometry& g, std::int64_t pixel, F&& f) {
  const std::int64_t h0 = pixel / g.out_w() * g.stride[0] - g.padding[0];
  const std::int64_t w0 = pixel % g.out_w() * g.stride[1] - g.padding[1];
  for (std::int64_t i = 0; i < g.kh; ++i)
    for (std::int64_t j = 0; j < g.kw; ++j) {
      const std::int64_t h = h0 + i * g.dilation[0], w = w0 + j * g.dilation[1];
      if (h >= 0 && h < g.h && w >= 0 && w < g.w) f(h, w, i * g.kw + j);
    }
}

/// patches (pixels, c, kh, kw) of image x (h, w, channels) from channel `first` on.
void gather(const ConvGeometry& g, const Part& part, const double* x, std::int64_t first, double* patches) {
  const std::int64_t taps = g.kh * g.kw;
  parallel_for(part.pixels, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      double* row = patches + p * part.patch;
      std::fill_n(row, part.patch, 0.0);
      for_taps(g, p, [&](std::int64_t h, std::int64_t w, std::int64_t tap) {
        const double* from = x + (h * g.w + w) * g.c + first;
        for (std::int64_t c = 0; c < part.c; ++c) row[c * taps + tap] = from[c];
      });
    }
  });
}

/// The reverse: adds patches into image gx. One thread, as patches overlap.
void scatter_add(const ConvGeometry& g, const Part& part, const double* patches, std::int64_t first,
                 double* gx) {
  const std::int64_t taps = g.kh * g.kw;
  for (std::int64_t p = 0; p < part.pixels; ++p) {
    const double* row = patches + p * part.patch;
    for_taps(g, p, [&](std::int64_t h, std::int64_t w, std::int64_t tap) {
      double* to = gx + (h * g.w + w) * g.c + first;
      for (std::int64_t c = 0; c < part.c; ++c) to[c] += row[c * taps + tap];
    });
  }
}

}  // namespace

std::size_t workspace(const ConvGeometry& g) {
  const Part part(g);
  return static_cast<std::size_t>(part.pixels * part.patch) * sizeof(double);
}

void forward(const ConvGeometry& g, const double* x, const double* weight, double* y, double* patches) {
  const Part part(g);
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t i = 0; i < g.groups; ++i) {
      gather(g, part, x + n * g.h * g.w * g.c, i * part.c, patches);
      gemm({false, true, part.pixels, part.o, part.patch, part.patch, part.patch, g.o}, patches,
           weight + i * part.o * part.patch, y + n * part.pixels * g.o + i * part.o, false);
    }
}

void backward_data(const ConvGeometry& g, const double* gy, const double* weight, double* gx,
                   double* patches) {
  const Part part(g);
  std::fill_n(gx, g.n * g.h * g.w * g.c, 0.0);
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t i = 0; i < g.groups; ++i) {
      gemm({false, false, part.pixels, part.patch, part.o, g.o, part.patch, part.patch},
           gy + n * part.pixels * g.o + i * part.o, weight + i * part.o * part.patch, patches, false);
      scatter_add(g, part, patches, i * part.c, gx + n * g.h * g.w * g.c);
    }
}

void backward_weight(const ConvGeometry& g, const double* x, const double* gy, double* gweight,
                     double* patches) {
  const Part part(g);
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t i = 0; i < g.groups; ++i) {
      gather(g, part, x + n * g.h * g.w * g.c, i * part.c, patches);
      gemm({true, false, part.o, part.patch, part.pixels, g.o, part.patch, part.patch},
           gy + n * part.pixels * g.o + i * part.o, patches, gweight + i * part.o * part.patch, n > 0);
    }
}

}  // namespace ssn::kernels::im2col
