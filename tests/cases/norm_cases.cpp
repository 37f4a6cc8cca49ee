#include <cmath>

#include "tests/op_case.h"

namespace ssn::test {
namespace {

struct Statistics {
  Doubles mean, var;  // biased
};

Statistics statistics(const Doubles& x, std::size_t channels) {
  Statistics s{Doubles(channels), Doubles(channels)};
  const double rows = static_cast<double>(x.size() / channels);
  for (std::size_t i = 0; i < x.size(); ++i) s.mean[i % channels] += x[i] / rows;
  for (std::size_t i = 0; i < x.size(); ++i)
    s.var[i % channels] += std::pow(x[i] - s.mean[i % channels], 2) / rows;
  return s;
}

Doubles normalised(const Doubles& x, const Statistics& s, const Doubles& gain, const Doubles& bias,
                   const BatchNormOptions& o) {
  Doubles y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % gain.size();
    const double z = (x[i] - s.mean[c]) / std::sqrt(s.var[c] + o.eps) * gain[c] + bias[c];
    y.push_back(o.activation == Activation::none   ? z
                : o.activation == Activation::relu ? std::max(z, 0.0)
                                                   : z / (1 + std::exp(-z)));
  }
  return y;
}

Tensor filled(const Var& x, double value) {
  return Tensor::full(Shape{x.shape()[-1]}, value, x.dtype(), x.device());
}
Var train(std::span<const Var> in, const BatchNormOptions& options) {
  return batch_norm(in[0], in[1], in[2], filled(in[0], 0), filled(in[0], 1), options);
}
Doubles trained(std::span<const Doubles> in, const BatchNormOptions& o) {
  const Statistics s = in[0].empty() ? Statistics{} : statistics(in[0], in[1].size());
  return normalised(in[0], s, in[1], in[2], o);
}
std::vector<Input> inputs_of(const Shape& x) {
  const Shape channels{x[-1]};
  return {{x}, {channels, Domain::positive}, {channels}};
}

OpCase training_case(const std::string& name, const Shape& shape, Activation activation) {
  const BatchNormOptions options{.eps = 1e-3, .activation = activation};
  const char* names[] = {"batch_norm_", "batch_norm_relu_", "batch_norm_silu_"};
  const bool relu = activation == Activation::relu;
  return {
      .name = names[static_cast<int>(activation)] + name,
      .inputs = inputs_of(shape),
      .f = [options](std::span<const Var> in) { return train(in, options); },
      .reference = [options](std::span<const Doubles> in) { return trained(in, options); },
      // All negative, a bias may cancel all but the last bits of what the ReLU lets pass.
      .adversarial = relu ? std::vector{Domain::large, Domain::equal, Domain::spread}
                          : std::vector{Domain::all_negative, Domain::large, Domain::equal, Domain::spread},
      .step = relu ? 1e-6 : 1e-4};
}

OpCase evaluation_case(const std::string& name, const Shape& shape, Activation activation) {
  const BatchNormOptions options{.eps = 1e-5, .training = false, .activation = activation};
  return {.name = "batch_norm_eval_" + name,
          .inputs = inputs_of(shape),
          .f =
              [options](std::span<const Var> in) {
                return batch_norm(in[0], in[1], in[2], filled(in[0], 0.25), filled(in[0], 2.25), options);
              },
          .reference =
              [options](std::span<const Doubles> in) {
                const Statistics s{Doubles(in[1].size(), 0.25), Doubles(in[1].size(), 2.25)};
                return normalised(in[0], s, in[1], in[2], options);
              },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

/// The running statistics after one step, as the output.
OpCase running_case(const std::string& name, std::int64_t rows, std::int64_t channels, bool mean) {
  const double momentum = 0.3;
  return {
      .name = (mean ? "batch_norm_running_mean_" : "batch_norm_running_var_") + name,
      .inputs = {{Shape{rows, channels}, Domain::normal, false},
                 {Shape{channels}, Domain::normal, false},
                 {Shape{channels}, Domain::normal, false}},
      .f =
          [=](std::span<const Var> in) {
            const Tensor running_mean = filled(in[0], 0.5), running_var = filled(in[0], 3);
            batch_norm(in[0], in[1], in[2], running_mean, running_var, {.momentum = momentum});
            return Var::constant(mean ? running_mean : running_var);
          },
      .reference =
          [=](std::span<const Doubles> in) {
            const Statistics s = statistics(in[0], static_cast<std::size_t>(channels));
            const double n = static_cast<double>(rows), unbiased = rows > 1 ? n / (n - 1) : 1;
            Doubles y;
            for (std::size_t c = 0; c < s.mean.size(); ++c)
              y.push_back(mean ? 0.7 * 0.5 + momentum * s.mean[c] : 0.7 * 3 + momentum * unbiased * s.var[c]);
            return y;
          }};
}

/// What the backward pass does in place: it may write over a gradient that no one else sees, and adds to one
/// that is there already.
std::vector<OpCase> composed_cases() {
  const BatchNormOptions with_relu{.activation = Activation::relu}, plain{};
  const std::vector<Input> inputs = inputs_of(Shape{37, 5});
  const auto sum = [](Doubles a, const Doubles& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  return {{.name = "batch_norm_twice",  // the second one's gradient is the first one's own memory
           .inputs = inputs,
           .f =
               [=](std::span<const Var> in) {
                 const Var y = train(in, with_relu);
                 return train(std::vector{y, in[1], in[2]}, plain);
               },
           .reference =
               [=](std::span<const Doubles> in) {
                 return trained(std::vector{trained(in, with_relu), in[1], in[2]}, plain);
               }},
          {.name = "batch_norm_residual",  // x has a gradient already
           .inputs = inputs,
           .f = [=](std::span<const Var> in) { return add(in[0], train(in, with_relu)); },
           .reference = [=](std::span<const Doubles> in) { return sum(in[0], trained(in, with_relu)); }},
          {.name = "batch_norm_two_uses",  // x's gradient is this node's own by the second use
           .inputs = inputs,
           .f = [=](std::span<const Var> in) { return relu(add(train(in, plain), train(in, with_relu))); },
           .reference =
               [=](std::span<const Doubles> in) {
                 Doubles y = sum(trained(in, plain), trained(in, with_relu));
                 for (double& v : y) v = v > 0 ? v : 0;
                 return y;
               }},
          {.name = "batch_norm_frozen",  // no gradient for the parameters
           .inputs = {inputs[0],
                      {inputs[1].shape, Domain::positive, false},
                      {inputs[2].shape, Domain::normal, false}},
           .f = [=](std::span<const Var> in) { return train(in, with_relu); },
           .reference = [=](std::span<const Doubles> in) { return trained(in, with_relu); }},
          {.name = "batch_norm_constant_input",
           .inputs = {{inputs[0].shape, Domain::normal, false}, inputs[1], inputs[2]},
           .f = [=](std::span<const Var> in) { return train(in, with_relu); },
           .reference = [=](std::span<const Doubles> in) { return trained(in, with_relu); }}};
}

/// Several inputs: the norm of their rows put together. The first one is used by something else too.
OpCase several_case(const std::string& name, std::int64_t rows, const std::vector<std::int64_t>& channels,
                    const BatchNormOptions& options) {
  std::int64_t all = 0;
  std::vector<Input> inputs;
  for (const std::int64_t c : channels) {
    inputs.push_back({Shape{rows, c}});
    all += c;
  }
  inputs.push_back({Shape{all}, Domain::positive});
  inputs.push_back({Shape{all}});
  const std::size_t k = channels.size();
  return {.name = "batch_norm_of_" + name,
          .inputs = inputs,
          .f =
              [=](std::span<const Var> in) {
                const Tensor mean = Tensor::full({all}, 0, in[0].dtype(), in[0].device());
                const Tensor var = Tensor::full({all}, 1, in[0].dtype(), in[0].device());
                std::vector<Var> xs(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(k));
                xs[0] = add(xs[0], xs[0]);
                const Var y = batch_norm(xs, in[k], in[k + 1], mean, var, options);
                xs = {xs[0], y};
                return batch_norm(
                    xs, Var::constant(Tensor::full({channels[0] + all}, 1, y.dtype(), y.device())),
                    Var::constant(Tensor::full({channels[0] + all}, 0, y.dtype(), y.device())),
                    Tensor::full({channels[0] + all}, 0, y.dtype(), y.device()),
                    Tensor::full({channels[0] + all}, 1, y.dtype(), y.device()), {.training = false});
              },
          .reference =
              [=](std::span<const Doubles> in) {
                const auto n = static_cast<std::size_t>(rows);
                Doubles x, y;
                for (std::size_t r = 0; r < n; ++r)
                  for (std::size_t i = 0; i < k; ++i)
                    for (std::size_t c = 0, m = static_cast<std::size_t>(channels[i]); c < m; ++c)
                      x.push_back((i == 0 ? 2 : 1) * in[i][r * m + c]);
                const Doubles z =
                    trained(std::vector{x, Doubles(in[k].begin(), in[k].end()), in[k + 1]}, options);
                const double scale = 1 / std::sqrt(1 + 1e-5);
                const auto first = static_cast<std::size_t>(channels[0]), width = in[k].size();
                for (std::size_t r = 0; r < n; ++r) {
                  for (std::size_t c = 0; c < first; ++c) y.push_back(scale * x[r * width + c]);
                  for (std::size_t c = 0; c < width; ++c) y.push_back(scale * z[r * width + c]);
                }
                return y;
              },
          .step = 1e-6};
}

/// A mean of 1000 deviations: the mean of squares less the square of the mean would lose the variance.
OpCase offset_case() {
  const auto shifted = [](Doubles x) {
    for (double& v : x) v = v + 1000;
    return x;
  };
  return {.name = "batch_norm_offset",
          .inputs = inputs_of(Shape{700, 3}),
          .f =
              [](std::span<const Var> in) {
                const Var x = bias_add(in[0], Var::constant(filled(in[0], 1000)));
                return train(std::vector{x, in[1], in[2]}, {});
              },
          .reference =
              [=](std::span<const Doubles> in) {
                return trained(std::vector{shifted(in[0]), in[1], in[2]}, {});
              },
          .f64_tolerance = 1e-10,
          .f32_tolerance = 1e-3};  // f32 keeps 6e-5 of 1000 ± 1, and the gradients add up a mean off by that
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases = composed_cases();
  const auto add_case = [&](const std::string& name, const Shape& shape) {
    for (const Activation a : {Activation::none, Activation::relu, Activation::silu})
      if (shape[0] != 1 || a != Activation::silu)  // the gradient of one row is 0 but for rounding
        cases.push_back(training_case(name, shape, a));
  };
  for (std::int64_t n : {0, 1, 31, 33, 127, 129}) {
    add_case(fmt::format("6x{}", n), Shape{6, n});
    add_case(fmt::format("{}x3", n), Shape{n, 3});
  }
  for (std::int64_t c : {16, 32, 64, 128, 640}) add_case(fmt::format("2x3x5x{}", c), Shape{2, 3, 5, c});
  add_case("2100x33", Shape{2100, 33});  // several chunks, the last one short
  add_case("70x1040", Shape{70, 1040});  // several parts of the channels
  cases.push_back(evaluation_case("29x7", Shape{29, 7}, Activation::none));
  cases.push_back(evaluation_case("relu_2x3x5x12", Shape{2, 3, 5, 12}, Activation::relu));
  cases.push_back(evaluation_case("silu_31x5", Shape{31, 5}, Activation::silu));
  cases.push_back(evaluation_case("0x3", Shape{0, 3}, Activation::relu));
  for (bool mean : {true, false}) {
    cases.push_back(running_case("1x3", 1, 3, mean));
    cases.push_back(running_case("2100x9", 2100, 9, mean));
  }
  cases.push_back(several_case("3_5_1", 37, {3, 5, 1}, {}));
  cases.push_back(several_case("8_4_relu", 700, {8, 4}, {.activation = Activation::relu}));
  cases.push_back(several_case("0_12_600_silu", 21, {0, 12, 600}, {.activation = Activation::silu}));
  cases.push_back(several_case("no_rows", 0, {2, 3}, {}));
  cases.push_back(offset_case());
  return cases;
}

}  // namespace ssn::test
