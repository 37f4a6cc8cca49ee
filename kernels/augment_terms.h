#pragma once
#include <cstdint>

#include "kernels/augment.h"
#include "runtime/hd.h"

// What the CPU and the CUDA kernel of kernels/augment.h share, so that both draw and round alike.
namespace ssn::kernels {

SSN_HD inline int clamped(std::int64_t value, std::int64_t least, std::int64_t most) {
  return static_cast<int>(value < least ? least : value > most ? most : value);
}

/// What happens to one image.
struct ImageChange {
  int flip;
  int dy, dx;                    // row y of the result is row y + dy of the mirrored image, if it has one
  int top, bottom, left, right;  // cut out: rows [top, bottom), columns [left, right)

  /// The column of the image that column x of the result shows, of w; only where 0 <= x + dx < w.
  SSN_HD int source(int x, int w) const { return flip != 0 ? w - 1 - (x + dx) : x + dx; }
};

SSN_HD inline ImageChange draw_change(const AugmentRule& rule, std::int64_t sample) {
  // Numbers kept for each sample: a draw does not depend on which others are made.
  constexpr std::int64_t kDraws = 8;
  enum Draw : std::int64_t { kFlip, kCropY, kCropX, kCutoutY, kCutoutX };
  const auto below = [&](std::int64_t n, Draw draw) {
    return rule.random.below(n, static_cast<std::uint64_t>(sample * kDraws + draw));
  };
  ImageChange change{};
  if (rule.flip) change.flip = below(2, kFlip) == 1;
  if (rule.padding > 0) {
    change.dy = clamped(below(2 * rule.padding + 1, kCropY) - rule.padding, -rule.h, rule.h);
    change.dx = clamped(below(2 * rule.padding + 1, kCropX) - rule.padding, -rule.w, rule.w);
  }
  if (rule.cutout > 0) {
    const std::int64_t top = below(rule.h, kCutoutY) - rule.cutout / 2,
                       left = below(rule.w, kCutoutX) - rule.cutout / 2;
    change.top = clamped(top, 0, rule.h), change.bottom = clamped(top + rule.cutout, 0, rule.h);
    change.left = clamped(left, 0, rule.w), change.right = clamped(left + rule.cutout, 0, rule.w);
  }
  return change;
}

SSN_HD inline float normalised(std::uint8_t x, float mean, float std) {
  return (static_cast<float>(x) / 255.0f - mean) / std;
}

}  // namespace ssn::kernels
