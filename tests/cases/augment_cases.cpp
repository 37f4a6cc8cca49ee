#include "kernels/augment.h"

#include "runtime/dispatch.h"
#include "tests/op_case.h"

namespace ssn::test {
namespace {

const Doubles kMeans = {0.5, 0.4, 0.25}, kDeviations = {0.25, 0.3, 0.2};

struct Row {
  std::int64_t n, h, w, c;
  bool flip = false;
  std::int64_t padding = 0, cutout = 0;

  std::string name() const {
    return fmt::format("augment_{}x{}x{}x{}_{}_{}_{}", n, h, w, c, flip ? "flip" : "plain", padding, cutout);
  }
  std::int64_t values() const { return h * w * c; }
  Random random() const { return {7, name()}; }
  /// Of image i: in no order, and beyond what the batch has.
  static std::int64_t sample(std::int64_t i) { return 1000 - 37 * i; }
};

std::uint8_t byte_of(double value) {
  return static_cast<std::uint8_t>(std::lround(std::abs(value) * 97));
}

/// Each channel's, along a row.
Tensor along_row(const Row& row, const Doubles& of_channels) {
  const Tensor values = Tensor::empty({row.w, row.c}, DType::f32);
  for (std::int64_t i = 0; i < values.size(); ++i)
    values.data<float>()[i] = static_cast<float>(of_channels[static_cast<std::size_t>(i % row.c)]);
  return values;
}

Tensor augmented(const Row& row, const Doubles& values, Device device) {
  const Shape shape{row.n, row.h, row.w, row.c};
  std::vector<std::uint8_t> bytes;
  for (const double value : values) bytes.push_back(byte_of(value));
  std::vector<std::int32_t> numbers;
  for (std::int64_t i = 0; i < row.n; ++i) numbers.push_back(static_cast<std::int32_t>(Row::sample(i)));
  const Tensor x = Tensor::of<std::uint8_t>(shape, bytes).to(device),
               samples = Tensor::of<std::int32_t>({row.n}, numbers).to(device),
               mean = along_row(row, kMeans).to(device), std = along_row(row, kDeviations).to(device),
               y = Tensor::empty(shape, DType::f32, device);
  const kernels::AugmentRule rule{row.h, row.w, row.c, row.flip, row.padding, row.cutout, row.random()};
  on_queue(device, "augment", [&](auto& queue) {
    kernels::augment(queue, row.n, rule, x.data<std::uint8_t>(), samples.data<std::int32_t>(),
                     mean.data<float>(), std.data<float>(), y.data<float>());
  });
  return y.to(Device::cpu);
}

/// On either device the same bits.
Var run(const Row& row, const Var& in) {
  const Doubles values = values_of(in.value());
  const Tensor y = augmented(row, values, in.device());
  EXPECT_TRUE(same_bits(y, augmented(row, values, Device::cpu)));
  return Var::constant(y.to(in.dtype()).to(in.device()));
}

Doubles reference(const Row& row, const Doubles& values) {
  Doubles y;
  for (std::int64_t i = 0; i < row.n; ++i) {
    const auto draw = [&](std::int64_t which, std::int64_t below) {
      return row.random().below(below, static_cast<std::uint64_t>(8 * Row::sample(i) + which));
    };
    const std::int64_t p = row.padding, dy = p ? draw(1, 2 * p + 1) - p : 0,
                       dx = p ? draw(2, 2 * p + 1) - p : 0, cut = row.cutout;
    const std::int64_t top = cut ? draw(3, row.h) - cut / 2 : 0, left = cut ? draw(4, row.w) - cut / 2 : 0;
    const bool flipped = row.flip && draw(0, 2) == 1;
    for (std::int64_t v = 0; v < row.values(); ++v) {
      const std::int64_t k = v % row.c, column = v / row.c % row.w, line = v / row.c / row.w;
      const std::int64_t from = line + dy, moved = column + dx, at = flipped ? row.w - 1 - moved : moved;
      double byte = 0;
      if (from >= 0 && from < row.h && at >= 0 && at < row.w)
        byte = byte_of(values[static_cast<std::size_t>(i * row.values() + (from * row.w + at) * row.c + k)]);
      const bool blank = line >= top && line < top + cut && column >= left && column < left + cut;
      const auto channel = static_cast<std::size_t>(k);
      y.push_back(blank ? 0 : (byte / 255 - kMeans[channel]) / kDeviations[channel]);
    }
  }
  return y;
}

}  // namespace

std::vector<OpCase> augment_cases() {
  std::vector<OpCase> cases;
  for (const Row& row : {
           Row{3, 7, 9, 1},
           Row{0, 5, 4, 3, true, 1, 1},
           Row{5, 8, 8, 1, false, 1},    // packs, of one channel
           Row{9, 6, 8, 3, true, 2, 3},  // packs, in which pixels begin anywhere
           Row{9, 6, 7, 3, true, 2, 3},  // none fits
           Row{4, 5, 6, 2, true, 0, 2},
           Row{6, 3, 4, 1, true, 5, 0},     // some are moved out of sight
           Row{5, 4, 3, 2, false, 0, 9},    // all is cut out
           Row{2, 41, 36, 3, true, 4, 16},  // several blocks an image
           Row{2, 1, 1, 3, true, 1, 0},
       })
    cases.push_back({.name = row.name(),
                     .inputs = {{Shape{row.n, row.h, row.w, row.c}, Domain::normal, false}},
                     .f = [row](std::span<const Var> in) { return run(row, in[0]); },
                     .reference = [row](std::span<const Doubles> in) { return reference(row, in[0]); },
                     .f64_tolerance = 1e-6});  // it is f32
  return cases;
}

}  // namespace ssn::test
