#pragma once
#include <vector>

#include "datasets/decode.h"
#include "runtime/random.h"

// Cutting images of any size to one size.
namespace ssn {

/// A random rectangle of a training image: its share of the image's area is uniform in [least_area, 1], the
/// logarithm of its aspect, relative to that of `to`, uniform between those of 3/4 and 4/3. Of ten attempts
/// the first that fits; else the centre, with the nearest of these aspects (Szegedy et al., 2015, section 6).
/// Draws from index `first` on.
Rectangle random_rectangle(const ImageExtent& image, const ImageExtent& to, double least_area,
                           const Random& random, std::uint64_t first);

/// What an image is tested on: the centre, 7/8 of the largest rectangle with the aspect of `to`. For 224 x
/// 224 that is the usual: the shorter side resized to 256, and the centre of that.
Rectangle central_rectangle(const ImageExtent& image, const ImageExtent& to);

/// Resizes as if the part had been cut out before: bilinear, and where it gets smaller each output pixel
/// averages a triangle as wide as two steps (antialiased). In integers, so the same on every machine. Reusing
/// one saves allocations.
class Resizer {
 public:
  /// u8 (to.height, to.width, 3) of what was asked for in `from`.
  void resize(const Decoded& from, const ImageExtent& to, std::uint8_t* out);

 private:
  /// What makes an output pixel: `count` input pixels from `first` on, with weights from `weight` on.
  struct Taps {
    std::int64_t first, count, weight;
  };
  struct Axis {
    std::vector<Taps> taps;
    std::vector<std::int32_t> weights;
    void plan(double begin, double length, std::int64_t limit, std::int64_t outputs);
  };

  Axis rows_, columns_;
  std::vector<std::int32_t> sums_;
  std::vector<std::uint8_t> line_;
};

}  // namespace ssn
