#pragma once
#include <algorithm>
#include <cmath>

#include "tests/op_case.h"

namespace ssn::test {

/// The two elements of an axis around the place that output i reads, and the share of the second.
struct Around {
  std::int64_t low, high;
  double share;

  Around(std::int64_t i, std::int64_t in, std::int64_t out) {
    const double place =
        (static_cast<double>(i) + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5;
    const double kept = std::clamp(place, 0.0, static_cast<double>(in - 1));
    low = static_cast<std::int64_t>(std::floor(kept));
    high = std::min(low + 1, in - 1);
    share = kept - static_cast<double>(low);
  }
};

/// x (n, h, w, c) resized to (n, out_h, out_w, c), from the definition.
inline Doubles bilinear(const Doubles& x, const Shape& shape, std::int64_t out_h, std::int64_t out_w) {
  const std::int64_t n = shape[0], h = shape[1], w = shape[2], c = shape[3];
  Doubles y;
  for (std::int64_t image = 0; image < n; ++image)
    for (std::int64_t i = 0; i < out_h; ++i)
      for (std::int64_t j = 0; j < out_w; ++j)
        for (std::int64_t k = 0; k < c; ++k) {
          const Around v(i, h, out_h), u(j, w, out_w);
          const auto at = [&](std::int64_t r, std::int64_t q) {
            return x.at(static_cast<std::size_t>(((image * h + r) * w + q) * c + k));
          };
          y.push_back((1 - v.share) * ((1 - u.share) * at(v.low, u.low) + u.share * at(v.low, u.high)) +
                      v.share * ((1 - u.share) * at(v.high, u.low) + u.share * at(v.high, u.high)));
        }
  return y;
}

}  // namespace ssn::test
