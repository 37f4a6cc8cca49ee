#include <cmath>

#include "tests/op_case.h"

namespace ssn::test {
namespace {

const std::vector<Domain> kAll = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread};

Doubles zip(const Doubles& a, const Doubles& b, double (*f)(double, double)) {
  Doubles y;
  for (std::size_t i = 0; i < a.size(); ++i) y.push_back(f(a[i], b.at(i)));
  return y;
}
double plus(double a, double b) {
  return a + b;
}
double cut(double a, double) {
  return a > 0 ? a : 0;
}
Doubles rectified(const Doubles& x) {
  return zip(x, x, cut);
}

OpCase add_case(const std::string& name, const Shape& shape) {
  return {.name = "add_" + name,
          .inputs = {{shape}, {shape}},
          .f = [](std::span<const Var> in) { return add(in[0], in[1]); },
          .reference = [](std::span<const Doubles> in) { return zip(in[0], in[1], plus); },
          .adversarial = kAll};
}

OpCase add_relu_case(const std::string& name, const Shape& shape) {
  return {.name = "add_relu_" + name,
          .inputs = {{shape, Domain::distinct}, {shape, Domain::positive}},
          .f = [](std::span<const Var> in) { return add_relu(in[0], in[1]); },
          .reference = [](std::span<const Doubles> in) { return rectified(zip(in[0], in[1], plus)); },
          .step = 1e-6};
}

OpCase relu_case(const std::string& name, const Shape& shape) {
  return {.name = "relu_" + name,
          .inputs = {{shape, Domain::distinct}},
          .f = [](std::span<const Var> in) { return relu(in[0]); },
          .reference = [](std::span<const Doubles> in) { return rectified(in[0]); },
          .adversarial = kAll};
}

OpCase bias_case(const std::string& name, const Shape& shape) {
  return {.name = "bias_" + name,
          .inputs = {{shape}, {Shape{shape[-1]}}},
          .f = [](std::span<const Var> in) { return bias_add(in[0], in[1]); },
          .reference =
              [](std::span<const Doubles> in) {
                Doubles y = in[0];
                for (std::size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % in[1].size()];
                return y;
              },
          .adversarial = kAll};
}

double gelu_of(double z) {
  return 0.5 * z * (1 + std::erf(z / std::sqrt(2.0)));
}

OpCase tanh_case(const std::string& name, const Shape& shape) {
  return {.name = "tanh_" + name,
          .inputs = {{shape}},
          .f = [](std::span<const Var> in) { return tanh(in[0]); },
          .reference =
              [](std::span<const Doubles> in) {
                return zip(in[0], in[0], [](double x, double) { return std::tanh(x); });
              },
          .adversarial = kAll};
}

OpCase sigmoid_case(const std::string& name, const Shape& shape) {
  return {.name = "sigmoid_" + name,
          .inputs = {{shape}},
          .f = [](std::span<const Var> in) { return sigmoid(in[0]); },
          .reference =
              [](std::span<const Doubles> in) {
                return zip(in[0], in[0], [](double x, double) { return 1 / (1 + std::exp(-x)); });
              },
          .adversarial = kAll};
}

OpCase silu_case(const std::string& name, const Shape& shape) {
  return {.name = "silu_" + name,
          .inputs = {{shape}},
          .f = [](std::span<const Var> in) { return silu(in[0]); },
          .reference =
              [](std::span<const Doubles> in) {
                return zip(in[0], in[0], [](double x, double) { return x / (1 + std::exp(-x)); });
              },
          .adversarial = kAll};
}

OpCase gelu_case(const std::string& name, const Shape& shape) {
  return {.name = "gelu_" + name,
          .inputs = {{shape}},
          .f = [](std::span<const Var> in) { return gelu(in[0]); },
          .reference =
              [](std::span<const Doubles> in) {
                return zip(in[0], in[0], [](double x, double) { return gelu_of(x); });
              },
          .adversarial = kAll};
}

OpCase bias_gelu_case(const std::string& name, const Shape& shape) {
  return {.name = "bias_gelu_" + name,
          .inputs = {{shape}, {Shape{shape[-1]}}},
          .f = [](std::span<const Var> in) { return bias_gelu(in[0], in[1]); },
          .reference =
              [](std::span<const Doubles> in) {
                Doubles y = in[0];
                for (std::size_t i = 0; i < y.size(); ++i) y[i] = gelu_of(y[i] + in[1][i % in[1].size()]);
                return y;
              },
          .adversarial = {Domain::large, Domain::equal, Domain::spread}};
}

/// Gradients that several nodes share, and nodes that use one value twice: none may be overwritten early.
std::vector<OpCase> shared_gradient_cases() {
  const Shape shape{5, 7};
  return {{.name = "add_same_twice",
           .inputs = {{shape}},
           .f = [](std::span<const Var> in) { return add(in[0], in[0]); },
           .reference = [](std::span<const Doubles> in) { return zip(in[0], in[0], plus); }},
          {.name = "relu_of_shared_gradient",
           .inputs = {{shape, Domain::distinct}, {shape, Domain::distinct}},
           .f = [](std::span<const Var> in) { return relu(add(relu(in[0]), relu(in[1]))); },
           .reference =
               [](std::span<const Doubles> in) {
                 return rectified(zip(rectified(in[0]), rectified(in[1]), plus));
               }},
          {.name = "relu_used_three_times",
           .inputs = {{shape, Domain::distinct}},
           .f =
               [](std::span<const Var> in) {
                 const Var y = relu(in[0]);
                 return relu(add(add(y, relu(y)), in[0]));
               },
           .reference =
               [](std::span<const Doubles> in) {
                 const Doubles y = rectified(in[0]);
                 return rectified(zip(zip(y, y, plus), in[0], plus));
               }},
          {.name = "reshape",
           .inputs = {{Shape{2, 3, 5, 7}}},
           .f =
               [](std::span<const Var> in) {
                 return reshape(in[0], Shape{6, 35});
               },
           .reference = [](std::span<const Doubles> in) { return in[0]; }}};
}

}  // namespace

std::vector<OpCase> math_cases() {
  std::vector<OpCase> cases = shared_gradient_cases();
  for (std::int64_t n : {0, 1, 31, 33, 127, 129, 20011}) {
    const std::string name = std::to_string(n);
    cases.push_back(add_case(name, Shape{n}));
    cases.push_back(relu_case(name, Shape{n}));
    cases.push_back(tanh_case(name, Shape{n}));
    cases.push_back(sigmoid_case(name, Shape{n}));
    cases.push_back(silu_case(name, Shape{n}));
    cases.push_back(gelu_case(name, Shape{n}));
    cases.push_back(bias_gelu_case("3x" + name, Shape{3, n}));
    cases.push_back(bias_case("3x" + name, Shape{3, n}));
    if (n < 200) cases.push_back(bias_case(name + "x5", Shape{n, 5}));
  }
  for (std::int64_t n : {0, 33, 1023}) cases.push_back(add_relu_case(std::to_string(n), Shape{n}));
  cases.push_back(add_case("2x3x5x7", Shape{2, 3, 5, 7}));
  cases.push_back(bias_case("2x3x5x64", Shape{2, 3, 5, 64}));
  cases.push_back(gelu_case("2x3x5", Shape{2, 3, 5}));
  cases.push_back(bias_gelu_case("2x3x64", Shape{2, 3, 64}));
  cases.push_back(bias_gelu_case("4099x12", Shape{4099, 12}));
  cases.push_back(bias_case("4099x12", Shape{4099, 12}));  // several chunks of rows, the last one short
  cases.push_back(bias_case("67x1030", Shape{67, 1030}));  // several parts of the columns
  return cases;
}

}  // namespace ssn::test
