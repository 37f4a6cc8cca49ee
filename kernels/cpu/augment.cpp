#include "kernels/augment.h"

#include <algorithm>
#include <vector>

#include "kernels/augment_terms.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

SSN_CLONES void normalise_row(const std::uint8_t* x, const float* mean, const float* std, std::int64_t n,
                              float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = normalised(x[i], mean[i], std[i]);
}

/// Row `y` of an image as it is once mirrored and shifted.
void move_row(const AugmentRule& rule, const ImageChange& change, std::int64_t y, const std::uint8_t* image,
              std::vector<std::uint8_t>& row) {
  const std::int64_t from = y + change.dy, c = rule.c;
  const bool inside = from >= 0 && from < rule.h;
  const int w = static_cast<int>(rule.w), first = std::max(0, -change.dx),
            last = inside ? std::min(w, w - change.dx) : first;
  const std::uint8_t* in = image + (inside ? from * rule.w * c : 0);
  std::fill_n(row.begin(), first * c, std::uint8_t{0});
  std::fill(row.begin() + std::max(first, last) * c, row.end(), std::uint8_t{0});
  if (change.flip == 0 && first < last)
    std::copy_n(in + change.source(first, w) * c, (last - first) * c, row.begin() + first * c);
  else
    for (int x = first; x < last; ++x)
      for (std::int64_t k = 0; k < c; ++k) row[x * c + k] = in[change.source(x, w) * c + k];
}

}  // namespace

void augment(CpuQueue&, std::int64_t n, const AugmentRule& rule, const std::uint8_t* x,
             const std::int32_t* samples, const float* mean, const float* std, float* y) {
  const std::int64_t row_size = rule.w * rule.c, size = rule.h * row_size;
  parallel_for(n, 1 + 16384 / size, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(row_size));
    for (std::int64_t i = begin; i < end; ++i) {
      const ImageChange change = draw_change(rule, samples[i]);
      for (std::int64_t line = 0; line < rule.h; ++line) {
        float* out = y + i * size + line * row_size;
        move_row(rule, change, line, x + i * size, row);
        normalise_row(row.data(), mean, std, row_size, out);
        if (line >= change.top && line < change.bottom)
          std::fill(out + change.left * rule.c, out + change.right * rule.c, 0.0f);
      }
    }
  });
}

}  // namespace ssn::kernels
