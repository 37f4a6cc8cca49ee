// What the cases of the optimizers' operations do not show: clipping, LAMB's ratio, gaps, averages in use.
#include "autograd/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/moving_average.h"
#include "tests/close.h"

namespace ssn {
namespace {

using test::values_of;

/// Two groups with a gap between, and one parameter that does not decay.
struct TwoGroups {
  TwoGroups() {
    parameters.add("a", {3}, Section::group, true, [](std::int64_t i) { return 1.0 + double(i); });
    parameters.add("b", {2}, Section::group, true, [](std::int64_t) { return 0.0; });
    parameters.add("c", {1}, Section::ordinary, false, [](std::int64_t) { return 2.0; });
    parameters.build();
  }
  void set_gradient(double value) {
    for (const Parameters::Entry& entry : parameters.entries()) entry.leaf.grad_buffer().fill(value);
  }
  Parameters parameters{DType::f64};
};

TEST(Clip, the_norm_is_over_all_parameters_once) {
  TwoGroups t;
  t.set_gradient(2);
  EXPECT_DOUBLE_EQ(gradient_norm(t.parameters), std::sqrt(6 * 4.0));
  t.parameters.entry("c").leaf.grad_buffer().fill(std::nan(""));
  EXPECT_TRUE(std::isnan(gradient_norm(t.parameters)));
  t.parameters.entry("c").leaf.grad_buffer().fill(HUGE_VAL);
  EXPECT_TRUE(std::isinf(gradient_norm(t.parameters)));
}

TEST(Clip, scales_what_is_longer) {
  const auto moved = [](double clip, double scale) {
    TwoGroups t;
    const auto sgd = make_optimizer({.momentum = 0, .nesterov = false, .decay = 0}, t.parameters);
    t.set_gradient(2);
    sgd->begin_step(0.1, scale);
    sgd->apply(t.parameters, {.clip = clip});
    EXPECT_DOUBLE_EQ(sgd->norm(), clip > 0 ? scale * std::sqrt(6 * 4.0) : 0);
    return 2 - values_of(t.parameters.entry("c").leaf.value())[0];
  };
  EXPECT_DOUBLE_EQ(moved(0, 1), 0.2);  // no clipping
  EXPECT_DOUBLE_EQ(moved(5, 1), 0.2);
  EXPECT_NEAR(moved(1, 1), 0.2 / std::sqrt(24.0), 1e-15);
  EXPECT_NEAR(moved(1, 0.5), 0.2 / std::sqrt(24.0), 1e-15);
}

TEST(Optimizer, a_guarded_step_that_is_not_finite_changes_nothing) {
  for (const std::string& name : names_of<OptimizerKind>()) {
    TwoGroups t;
    const auto optimizer = make_optimizer(usual_options(value_named<OptimizerKind>(name)), t.parameters);
    MovingAverage average(0.9, t.parameters);
    const Tensor before = t.parameters.values().clone(), state = optimizer->states()[0].values.clone();
    for (const double wrong : {std::nan(""), HUGE_VAL}) {
      t.set_gradient(1);
      t.parameters.entry("b").leaf.grad_buffer().fill(wrong);
      optimizer->begin_step(0.1);
      optimizer->apply(t.parameters, {.finite = true});
      average.update(t.parameters, *optimizer);
      EXPECT_FALSE(std::isfinite(optimizer->norm()));
      EXPECT_TRUE(test::same_bits(t.parameters.values(), before)) << name;
      EXPECT_TRUE(test::same_bits(optimizer->states()[0].values, state)) << name;
      EXPECT_TRUE(test::same_bits(average.values(), before)) << name;
    }
    t.set_gradient(1);
    optimizer->begin_step(0.1);
    optimizer->apply(t.parameters, {.finite = true});
    EXPECT_FALSE(test::same_bits(t.parameters.values(), before)) << name;
  }
}

TEST(Optimizer, gaps_stay_zero) {
  for (const std::string& name : names_of<OptimizerKind>()) {
    TwoGroups t;
    const auto optimizer = make_optimizer(usual_options(value_named<OptimizerKind>(name)), t.parameters);
    ASSERT_EQ(std::ssize(optimizer->states()), states_of(optimizer->options().kind));
    for (int step = 0; step < 3; ++step) {
      t.set_gradient(1);
      optimizer->step(t.parameters, 0.1);
    }
    std::vector<double> values = values_of(t.parameters.values());
    EXPECT_GT(values.size(), 6U);
    for (const Parameters::Entry& entry : t.parameters.entries())
      for (double& v : std::span(values).subspan(static_cast<std::size_t>(entry.range.first),
                                                 static_cast<std::size_t>(entry.range.size))) {
        EXPECT_NE(v, 0) << name << " " << entry.name;
        v = 0;
      }
    EXPECT_EQ(test::scale_of(values), 0) << name;
  }
}

TEST(Optimizer, lamb_has_a_ratio_for_each_tensor) {
  TwoGroups t;
  const auto lamb = make_optimizer(usual_options(OptimizerKind::lamb), t.parameters);
  t.set_gradient(1);
  lamb->step(t.parameters, 0.1);
  // r = 1 in the first step (to epsilon); u = r + 0.01 · theta.
  const double a[] = {1, 2, 3}, u[] = {1.01, 1.02, 1.03};
  const double ratio = std::sqrt((1 + 4 + 9) / (u[0] * u[0] + u[1] * u[1] + u[2] * u[2]));
  const std::vector<double> got = values_of(t.parameters.entry("a").leaf.value());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], a[i] - 0.1 * ratio * u[i], 1e-5);
  EXPECT_NEAR(values_of(t.parameters.entry("b").leaf.value())[0], -0.1, 1e-5);  // its norm was 0: ratio 1
  EXPECT_NEAR(values_of(t.parameters.entry("c").leaf.value())[0], 2 - 0.1 * 2, 1e-5);  // no decay
  t.set_gradient(0);
  const auto untouched = make_optimizer({.kind = OptimizerKind::lamb, .decay = 0}, t.parameters);
  const Tensor before = t.parameters.values().clone();
  untouched->step(t.parameters, 0.1);  // u is 0
  EXPECT_TRUE(test::same_bits(t.parameters.values(), before));
}

TEST(Optimizer, corrections_are_of_the_step) {
  const auto moved = [](std::int64_t steps) {
    TwoGroups t;
    const auto adam = make_optimizer(usual_options(OptimizerKind::adam), t.parameters);
    adam->set_steps(steps);
    t.set_gradient(1);
    adam->step(t.parameters, 0.1);
    return 2 - values_of(t.parameters.entry("c").leaf.value())[0];
  };
  EXPECT_NEAR(moved(0), 0.1, 1e-8);
  const double m = 0.1 / (1 - std::pow(0.9, 5)), v = 0.001 / (1 - std::pow(0.999, 5));
  EXPECT_NEAR(moved(4), 0.1 * m / std::sqrt(v), 1e-7);
}

TEST(MovingAverage, is_in_use_while_asked_for) {
  TwoGroups t;
  EXPECT_THROW(MovingAverage(1, t.parameters), UsageError);
  const std::optional<MovingAverage> none;
  std::optional<MovingAverage> average;
  average.emplace(0.9, t.parameters);
  const Tensor start = t.parameters.values().clone();
  t.parameters.values().fill(7);
  const Tensor own = t.parameters.values().clone();
  const auto version = t.parameters.version();
  {
    const AverageInUse in_use(none, t.parameters);
    EXPECT_TRUE(test::same_bits(t.parameters.values(), own));
    EXPECT_EQ(t.parameters.version(), version);
  }
  {
    const AverageInUse in_use(average, t.parameters);
    EXPECT_TRUE(test::same_bits(t.parameters.values(), start));
    EXPECT_NE(t.parameters.version(), version);
  }
  EXPECT_TRUE(test::same_bits(t.parameters.values(), own));
}

}  // namespace
}  // namespace ssn
