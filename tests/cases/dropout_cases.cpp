#include "tests/op_case.h"

namespace ssn::test {
namespace {

OpCase dropout_case(const std::string& name, const Shape& shape, double rate, std::int64_t first,
                    std::int64_t unit) {
  const Random random(7, name);
  return {.name = "dropout_" + name,
          .inputs = {{shape}},
          .f =
              [=](std::span<const Var> in) {
                return dropout(in[0], {.rate = rate, .random = random, .first = first, .unit = unit});
              },
          .reference =
              [=](std::span<const Doubles> in) {
                Doubles y = in[0];
                const auto sample = static_cast<std::uint64_t>(shape[0] ? shape.size() / shape[0] : 1);
                for (std::size_t i = 0; i < y.size(); ++i) {
                  const std::uint64_t u =
                      (static_cast<std::uint64_t>(first) * sample + i) / static_cast<std::uint64_t>(unit);
                  const std::uint32_t bits = philox(random.seed(), random.stream(), u / 4).v[u % 4];
                  y[i] = bits / 4294967296.0 < rate ? 0 : y[i] / (1 - rate);
                }
                return y;
              },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

/// Some and not all are dropped, a unit with all its elements; a part of a batch drops what the whole does.
OpCase parts_case() {
  const auto options = [](std::int64_t first) {
    return DropoutOptions{.rate = 0.5, .random = Random(1, "parts"), .first = first, .unit = 3};
  };
  return {.name = "dropout_parts",
          .inputs = {{Shape{40, 3}, Domain::equal}, {Shape{7, 3}, Domain::equal}},
          .f =
              [=](std::span<const Var> in) {
                const Var part = dropout(in[1], options(20)), all = dropout(in[0], options(0));
                const Tensor rows = all.value().slice(20 * 3, {7, 3});
                EXPECT_TRUE(same_bits(part.value(), rows));
                const Doubles values = values_of(all.value());
                double kept = 0;
                for (std::size_t i = 0; i < values.size(); ++i) {
                  kept += values[i] > 0;
                  EXPECT_EQ(values[i], values[i / 3 * 3]);
                }
                EXPECT_TRUE(kept > 30 && kept < 90) << kept;
                return part;
              },
          .reference =
              [=](std::span<const Doubles> in) {
                Doubles y = in[1];
                for (std::size_t i = 0; i < y.size(); ++i) {
                  const Random random(1, "parts");
                  const std::uint64_t u = 20 + i / 3;
                  y[i] *= philox(random.seed(), random.stream(), u / 4).v[u % 4] >> 31 ? 2 : 0;
                }
                return y;
              }};
}

}  // namespace

std::vector<OpCase> dropout_cases() {
  std::vector<OpCase> cases = {parts_case()};
  for (std::int64_t n : {0, 1, 31, 33, 127, 129, 20011})
    cases.push_back(dropout_case(std::to_string(n), Shape{n}, 0.3, 0, 1));
  cases.push_back(dropout_case("9x7_from_5", Shape{9, 7}, 0.1, 5, 1));
  cases.push_back(dropout_case("300x128_from_64", Shape{300, 128}, 0.9, 64, 1));
  cases.push_back(dropout_case("samples_11x2x3x5", Shape{11, 2, 3, 5}, 0.5, 3, 30));
  cases.push_back(dropout_case("samples_700x36", Shape{700, 36}, 0.2, 1, 36));
  cases.push_back(dropout_case("pairs_13x5", Shape{13, 5}, 0.5, 1, 2));
  cases.push_back(dropout_case("none_6x5", Shape{6, 5}, 0, 1, 1));
  return cases;
}

}  // namespace ssn::test
