#include "autograd/moving_average.h"
#include "autograd/optimizer.h"
#include "tests/op_case.h"

namespace ssn::test {
namespace {

using Kind = OptimizerKind;

/// Parameters of sizes n, n + 2 and 5, of which the last does not decay; three steps, at falling rates, each
/// against the same gradient with another scale.
constexpr double kRates[] = {0.1, 0.05, 0.02}, kScales[] = {1, 0.25, 2};

enum class Output { values, state0, state1, average, norm };

struct Row {
  std::string name;
  std::int64_t n;
  OptimizerOptions options;
  Output output = Output::values;
};

std::vector<std::int64_t> sizes(const Row& row) {
  return {row.n, row.n + 2, 5};
}

Var run(const Row& row, std::span<const Var> in) {
  const Doubles start = values_of(in[0].value());
  Parameters parameters(in[0].dtype(), in[0].device());
  std::int64_t first = 0;
  for (const std::int64_t size : sizes(row)) {
    parameters.add(fmt::format("p{}", first), Shape{size}, Section::ordinary, size != 5,
                   [&start, first](std::int64_t i) { return start[static_cast<std::size_t>(first + i)]; });
    first += size;
  }
  parameters.build();
  const auto optimizer = make_optimizer(row.options, parameters);
  MovingAverage average(0.25, parameters);
  double norm = 0;
  for (int t = 0; t < 3; ++t) {
    parameters.gradients().copy_from(in[1].value());
    norm = gradient_norm(parameters);
    optimizer->step(parameters, kRates[t], kScales[t]);
    average.update(parameters, *optimizer);
  }
  switch (row.output) {
    case Output::state0: return Var::constant(optimizer->states().at(0).values);
    case Output::state1: return Var::constant(optimizer->states().at(1).values);
    case Output::average: return Var::constant(average.values());
    case Output::norm: return Var::constant(Tensor::full({1}, norm, in[0].dtype(), in[0].device()));
    case Output::values: break;
  }
  return Var::constant(parameters.values());
}

struct Naive {
  Doubles theta, s0, s1, average;

  /// One tensor's stretch [first, last), step t from 1.
  void step(const OptimizerOptions& o, int t, const Doubles& g, std::size_t first, std::size_t last,
            double decay) {
    const double lr = kRates[t - 1], c0 = 1 - std::pow(o.beta1, t), c1 = 1 - std::pow(o.beta2, t);
    Doubles u(last);
    double theta_norm = 0, u_norm = 0;
    for (std::size_t i = first; i < last; ++i) {
      const bool decoupled = o.kind == Kind::adamw || o.kind == Kind::lamb;
      const double d = g[i] * kScales[t - 1] + (decoupled ? 0 : decay * theta[i]);
      if (o.kind == Kind::sgd) {
        s0[i] = o.momentum * s0[i] + d;
        u[i] = o.nesterov ? d + o.momentum * s0[i] : s0[i];
      } else if (o.kind == Kind::rmsprop) {
        s0[i] = o.beta2 * s0[i] + (1 - o.beta2) * d * d;
        s1[i] = o.momentum * s1[i] + lr * d / std::sqrt(s0[i] + o.epsilon);
        u[i] = s1[i] / lr;
      } else {
        s0[i] = o.beta1 * s0[i] + (1 - o.beta1) * d;
        s1[i] = o.beta2 * s1[i] + (1 - o.beta2) * d * d;
        u[i] = s0[i] / c0 / (std::sqrt(s1[i] / c1) + o.epsilon) + (decoupled ? decay * theta[i] : 0);
      }
      theta_norm += theta[i] * theta[i];
      u_norm += u[i] * u[i];
    }
    const double ratio = o.kind == Kind::lamb ? std::sqrt(theta_norm / u_norm) : 1;
    for (std::size_t i = first; i < last; ++i) theta[i] -= lr * ratio * u[i];
  }
};

Doubles reference(const Row& row, std::span<const Doubles> in) {
  const std::size_t n = in[0].size();
  Naive naive{in[0], Doubles(n, row.options.kind == Kind::rmsprop ? 1 : 0), Doubles(n), in[0]};
  for (int t = 1; t <= 3; ++t) {
    std::size_t first = 0;
    for (const std::int64_t size : sizes(row)) {
      const std::size_t last = first + static_cast<std::size_t>(size);
      naive.step(row.options, t, in[1], first, last, size == 5 ? 0 : row.options.decay);
      first = last;
    }
    const double d = std::min(0.25, (1.0 + t) / (10.0 + t));  // 2/11, 0.25, 0.25
    for (std::size_t i = 0; i < n; ++i) naive.average[i] = d * naive.average[i] + (1 - d) * naive.theta[i];
  }
  switch (row.output) {
    case Output::state0: return naive.s0;
    case Output::state1: return naive.s1;
    case Output::average: return naive.average;
    case Output::norm: break;
    case Output::values: return naive.theta;
  }
  double squares = 0;
  for (const double g : in[1]) squares += g * g;
  return {std::sqrt(squares)};
}

}  // namespace

std::vector<OpCase> optimizer_cases() {
  const OptimizerOptions nesterov{.momentum = 0.9, .nesterov = true, .decay = 0.02},
      heavy_ball{.momentum = 0.8, .nesterov = false, .decay = 0.02},
      plain{.momentum = 0, .nesterov = false, .decay = 0},
      adam{.kind = Kind::adam, .beta1 = 0.8, .beta2 = 0.95, .decay = 0.02},
      adamw{.kind = Kind::adamw, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .decay = 0.02},
      lamb{.kind = Kind::lamb, .beta1 = 0.8, .beta2 = 0.95, .decay = 0.02},
      rmsprop{.kind = Kind::rmsprop, .momentum = 0.7, .beta2 = 0.9, .epsilon = 1e-3, .decay = 0.02};
  std::vector<Row> rows = {
      {"sgd_nesterov_31", 31, nesterov},
      {"sgd_nesterov_127", 127, nesterov},
      {"sgd_nesterov_129", 129, nesterov},
      {"sgd_heavy_ball_33", 33, heavy_ball},
      {"sgd_plain_33", 33, plain},
      {"sgd_velocity_heavy_ball_33", 33, heavy_ball, Output::state0},
      {"moving_average_31", 31, nesterov, Output::average},
      {"moving_average_9001", 9001, nesterov, Output::average},
      {"gradient_norm_1", 1, nesterov, Output::norm},
      {"gradient_norm_33", 33, nesterov, Output::norm},
      {"gradient_norm_30011", 30011, nesterov, Output::norm},
  };
  for (const OptimizerOptions& options : {nesterov, adam, adamw, lamb, rmsprop}) {
    const std::string name(name_of(options.kind));
    for (const std::int64_t n : {1, 33, 30011}) rows.push_back({fmt::format("{}_{}", name, n), n, options});
    rows.push_back({name + "_state0_129", 129, options, Output::state0});
    if (options.kind != Kind::sgd) rows.push_back({name + "_state1_129", 129, options, Output::state1});
  }
  std::vector<OpCase> cases;
  for (const Row& row : rows) {
    const Shape shape{2 * row.n + 7};
    cases.push_back({.name = row.name,
                     .inputs = {{shape, Domain::normal, false}, {shape, Domain::normal, false}},
                     .f = [row](std::span<const Var> in) { return run(row, in); },
                     .reference = [row](std::span<const Doubles> in) { return reference(row, in); }});
  }
  return cases;
}

}  // namespace ssn::test
