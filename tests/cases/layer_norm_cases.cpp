#include <cmath>

#include "tests/op_case.h"

namespace ssn::test {
namespace {

constexpr double kEps = 1e-3;

Doubles normalised(const Doubles& s, const Doubles& gain, const Doubles& bias) {
  const std::size_t cols = gain.size();
  Doubles y;
  for (std::size_t first = 0; first < s.size(); first += cols) {
    double mean = 0, var = 0;
    for (std::size_t c = 0; c < cols; ++c) mean += s[first + c] / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c)
      var += std::pow(s[first + c] - mean, 2) / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c)
      y.push_back((s[first + c] - mean) / std::sqrt(var + kEps) * gain[c] + bias[c]);
  }
  return y;
}
Doubles sum(Doubles a, const Doubles& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
const std::vector<Domain> kDomains = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread};

OpCase plain_case(const std::string& name, const Shape& x) {
  const Shape columns{x[-1]};
  return {.name = "layer_norm_" + name,
          .inputs = {{x}, {columns, Domain::positive}, {columns}},
          .f = [](std::span<const Var> in) { return layer_norm(in[0], in[1], in[2], kEps); },
          .reference = [](std::span<const Doubles> in) { return normalised(in[0], in[1], in[2]); },
          .adversarial = kDomains};
}

OpCase sum_case(const std::string& name, const Shape& x) {
  const Shape columns{x[-1]};
  return {
      .name = "add_layer_norm_" + name,
      .inputs = {{x}, {x}, {columns, Domain::positive}, {columns}},
      .f = [](std::span<const Var> in) { return add_layer_norm(in[0], in[1], in[2], in[3], kEps); },
      .reference = [](std::span<const Doubles> in) { return normalised(sum(in[0], in[1]), in[2], in[3]); },
      .adversarial = {Domain::all_negative, Domain::equal, Domain::spread}};
}

/// Gradients that two nodes share, and some that nothing asks for.
std::vector<OpCase> composed_cases() {
  const Shape x{9, 6}, columns{6};
  return {
      {.name = "add_layer_norm_of_itself",
       .inputs = {{x}, {columns, Domain::positive}, {columns}},
       .f = [](std::span<const Var> in) { return add_layer_norm(in[0], in[0], in[1], in[2], kEps); },
       .reference = [](std::span<const Doubles> in) { return normalised(sum(in[0], in[0]), in[1], in[2]); }},
      {.name = "add_layer_norm_residual",
       .inputs = {{x}, {columns, Domain::positive}, {columns}},
       .f =
           [](std::span<const Var> in) {
             const Var h = layer_norm(in[0], in[1], in[2], kEps);
             return add_layer_norm(h, gelu(h), in[1], in[2], kEps);
           },
       .reference =
           [](std::span<const Doubles> in) {
             const Doubles h = normalised(in[0], in[1], in[2]);
             Doubles s = h;
             for (double& v : s) v += 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
             return normalised(s, in[1], in[2]);
           }},
      {.name = "add_layer_norm_frozen",
       .inputs = {{x, Domain::normal, false},
                  {x},
                  {columns, Domain::positive, false},
                  {columns, Domain::normal, false}},
       .f = [](std::span<const Var> in) { return add_layer_norm(in[0], in[1], in[2], in[3], kEps); },
       .reference = [](std::span<const Doubles> in) { return normalised(sum(in[0], in[1]), in[2], in[3]); }},
      {.name = "layer_norm_constant_input",
       .inputs = {{x, Domain::normal, false}, {columns, Domain::positive}, {columns}},
       .f = [](std::span<const Var> in) { return layer_norm(in[0], in[1], in[2], kEps); },
       .reference = [](std::span<const Doubles> in) { return normalised(in[0], in[1], in[2]); }}};
}

/// A mean of 1000 deviations.
OpCase offset_case() {
  return {.name = "layer_norm_offset",
          .inputs = {{Shape{5, 300}}, {Shape{300}, Domain::positive}, {Shape{300}}},
          .f =
              [](std::span<const Var> in) {
                const Var far = Var::constant(Tensor::full({300}, 1000, in[0].dtype(), in[0].device()));
                return layer_norm(bias_add(in[0], far), in[1], in[2], kEps);
              },
          .reference =
              [](std::span<const Doubles> in) {
                return normalised(sum(in[0], Doubles(in[0].size(), 1000)), in[1], in[2]);
              },
          .f64_tolerance = 1e-10,
          .f32_tolerance = 1e-3};  // f32 keeps 6e-5 of 1000 ± 1
}

}  // namespace

std::vector<OpCase> layer_norm_cases() {
  std::vector<OpCase> cases = composed_cases();
  cases.push_back(offset_case());
  const auto add_case = [&](const std::string& name, const Shape& shape) {
    cases.push_back(plain_case(name, shape));
    cases.push_back(sum_case(name, shape));
  };
  for (std::int64_t n : {0, 2, 31, 33, 129, 1030}) add_case(fmt::format("6x{}", n), Shape{6, n});
  for (std::int64_t n : {0, 1, 129, 1699}) add_case(fmt::format("{}x5", n), Shape{n, 5});
  add_case("2x3x64", Shape{2, 3, 64});
  add_case("70x768", Shape{70, 768});  // several chunks, the last one short
  return cases;
}

}  // namespace ssn::test
