#pragma once
#include <cstdint>

#include "runtime/queue.h"
#include "runtime/random.h"

namespace ssn::kernels {

/// How images are changed at random, each as (random, its sample) alone says. An image has at most
/// 2³⁰ values.
struct AugmentRule {
  std::int64_t h, w, c;
  bool flip;             // mirror left to right, every second image
  std::int64_t padding;  // shift by up to this many pixels each way; what moves in is black (u8 0)
  std::int64_t cutout;   // side of a square with its centre anywhere in the image, where y is 0
  Random random;
};

/// y = (x / 255 − mean) / std of images x that are mirrored and then shifted, and 0 where they are cut out. x
/// is u8 and y f32, both (n, h, w, c); samples (n) are the images' numbers in their set; mean and std are of
/// a row, (w, c). The same bits on every device. Overwrites.
void augment(CpuQueue&, std::int64_t n, const AugmentRule& rule, const std::uint8_t* x,
             const std::int32_t* samples, const float* mean, const float* std, float* y);
void augment(CudaQueue&, std::int64_t n, const AugmentRule& rule, const std::uint8_t* x,
             const std::int32_t* samples, const float* mean, const float* std, float* y);

}  // namespace ssn::kernels
