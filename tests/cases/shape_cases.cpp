#include "tests/op_case.h"

namespace ssn::test {

std::vector<OpCase> shape_cases() {
  std::vector<OpCase> cases;
  const auto pad = [&](const Shape& shape, std::int64_t before, std::int64_t channels) {
    cases.push_back({.name = fmt::format("pad_channels_{}_{}_{}", shape.text(), before, channels),
                     .inputs = {{shape}},
                     .f = [=](std::span<const Var> in) { return pad_channels(in[0], before, channels); },
                     .reference =
                         [=](std::span<const Doubles> in) {
                           const std::int64_t c = shape[-1], rows = shape.size() / c;
                           Doubles y(static_cast<std::size_t>(rows * channels));
                           for (std::int64_t i = 0; i < shape.size(); ++i)
                             y[static_cast<std::size_t>(i / c * channels + before + i % c)] =
                                 in[0][static_cast<std::size_t>(i)];
                           return y;
                         },
                     .adversarial = {Domain::spread, Domain::all_negative}});
  };
  pad({2, 3, 5, 7}, 2, 11);
  pad({0, 3, 5, 7}, 2, 11);
  pad({1}, 0, 1);
  pad({129, 33}, 0, 34);
  pad({31, 127}, 4, 131);
  return cases;
}

}  // namespace ssn::test
