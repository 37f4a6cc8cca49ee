#include "autograd/optimizer.h"
#include "tests/op_case.h"

namespace ssn::test {
namespace {

/// Three parameters of sizes n, 5 and n + 2, of which the second does not decay; three steps, each against
/// the same gradient, at falling rates. The output is the flat values (or velocities).
struct Row {
  std::string name;
  std::int64_t n;
  SgdOptions options;
  bool velocity = false;
};
constexpr double kRates[] = {0.1, 0.05, 0.02};

std::int64_t size_of_all(std::int64_t n) {
  return n + 5 + n + 2;
}

Var run(const Row& row, std::span<const Var> in) {
  const Doubles start = values_of(in[0].value());
  Parameters parameters(in[0].dtype(), in[0].device());
  std::int64_t first = 0;
  const auto ask = [&](const char* name, std::int64_t size, bool decay) {
    parameters.add(name, Shape{size}, Section::ordinary, decay,
                   [&start, first](std::int64_t i) { return start[static_cast<std::size_t>(first + i)]; });
    first += size;
  };
  ask("a", row.n, true);
  ask("c", row.n + 2, true);  // laid out beside a, before what does not decay
  ask("b", 5, false);
  parameters.build();
  Sgd sgd(parameters, row.options);
  for (double lr : kRates) {
    parameters.gradients().copy_from(in[1].value());
    sgd.step(parameters, lr);
  }
  return Var::constant(row.velocity ? sgd.velocity() : parameters.values());
}

Doubles reference(const Row& row, std::span<const Doubles> in) {
  Doubles theta = in[0], velocity(theta.size());
  const std::size_t decaying = theta.size() - 5;
  for (double lr : kRates)
    for (std::size_t i = 0; i < theta.size(); ++i) {
      const double d = in[1][i] + (i < decaying ? row.options.decay * theta[i] : 0);
      velocity[i] = row.options.momentum * velocity[i] + d;
      theta[i] -= lr * (row.options.nesterov ? d + row.options.momentum * velocity[i] : velocity[i]);
    }
  return row.velocity ? velocity : theta;
}

}  // namespace

std::vector<OpCase> optimizer_cases() {
  const SgdOptions nesterov{.momentum = 0.9, .decay = 0.02, .nesterov = true};
  const SgdOptions heavy_ball{.momentum = 0.8, .decay = 0.02, .nesterov = false};
  const SgdOptions plain{.momentum = 0, .decay = 0, .nesterov = false};
  const std::vector<Row> rows = {
      {"nesterov_1", 1, nesterov},
      {"nesterov_31", 31, nesterov},
      {"nesterov_33", 33, nesterov},
      {"nesterov_127", 127, nesterov},
      {"nesterov_129", 129, nesterov},
      {"nesterov_30011", 30011, nesterov},
      {"heavy_ball_33", 33, heavy_ball},
      {"plain_33", 33, plain},
      {"velocity_nesterov_33", 33, nesterov, true},
      {"velocity_heavy_ball_33", 33, heavy_ball, true},
  };
  std::vector<OpCase> cases;
  for (const Row& row : rows) {
    const Shape shape{size_of_all(row.n)};
    cases.push_back({.name = "sgd_" + row.name,
                     .inputs = {{shape, Domain::normal, false}, {shape, Domain::normal, false}},
                     .f = [row](std::span<const Var> in) { return run(row, in); },
                     .reference = [row](std::span<const Doubles> in) { return reference(row, in); }});
  }
  return cases;
}

}  // namespace ssn::test
