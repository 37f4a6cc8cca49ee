#include "tests/op_case.h"

namespace ssn::test {
namespace {

OpCase scale_case(const std::string& name, const Shape& shape) {
  const auto n = static_cast<std::size_t>(shape[0]), c = static_cast<std::size_t>(shape[3]);
  return {.name = "scale_channels_" + name,
          .inputs = {{shape}, {Shape{shape[0], shape[3]}}},
          .f = [](std::span<const Var> in) { return scale_channels(in[0], in[1]); },
          .reference =
              [=](std::span<const Doubles> in) {
                Doubles y = in[0];
                for (std::size_t i = 0; i < y.size(); ++i) y[i] *= in[1][i / (y.size() / n) * c + i % c];
                return y;
              },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

}  // namespace

std::vector<OpCase> scale_cases() {
  std::vector<OpCase> cases;
  for (std::int64_t c : {0, 1, 31, 33, 64, 127, 129})
    cases.push_back(scale_case(fmt::format("2x3x5x{}", c), {2, 3, 5, c}));
  cases.push_back(scale_case("0x3x5x4", {0, 3, 5, 4}));
  cases.push_back(scale_case("7x1x1x6", {7, 1, 1, 6}));
  cases.push_back(scale_case("3x23x19x12", {3, 23, 19, 12}));
  cases.push_back(scale_case("2x2x1x1040", {2, 2, 1, 1040}));  // several parts of the channels
  return cases;
}

}  // namespace ssn::test
