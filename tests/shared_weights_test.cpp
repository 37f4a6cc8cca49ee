// Shared weights in a small network: both policies give the same bits and true gradients, groups are reported
// once and at the right time.
#include "ssn/shared_weights.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "layers/conv.h"
#include "layers/linear.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "tests/close.h"

namespace ssn {
namespace {

using test::same_bits;

struct Settings {
  WeightPolicy policy = WeightPolicy::eager;
  std::string budget = "150";
  Mapping mapping = {};
  DType dtype = DType::f32;
  int templates = 8;
  std::uint64_t seed = 5;
  bool with_spare = false;
};

/// Two convolutions, a third used twice, a classifier; sizes 108, 180, 225, 35. `spare` is asked for and
/// never used.
class Fixture {
 public:
  explicit Fixture(const Settings& s = {}) : parameters(s.dtype), weights(parameters, options(s), s.policy) {
    const Scope scope{weights, parameters};
    conv1_.emplace(scope.at("conv1"), 3, 4, Conv2d::Options{});
    if (s.with_spare) spare_.emplace(scope.at("spare"), 2, 8, Conv2d::Options{});
    conv2_.emplace(scope.at("conv2"), 4, 5, Conv2d::Options{.stride = 2});
    conv3_.emplace(scope.at("conv3"), 5, 5, Conv2d::Options{});
    fc_.emplace(scope.at("fc"), 5, 7);
    weights.build();
    parameters.build();
  }

  /// The loss of batch `index`; `middle` stands between the convolutions.
  Var loss(int index, const std::function<Var(const Var&)>& middle = relu) const {
    const Random draws(9, static_cast<std::uint64_t>(index));
    std::vector<double> x(2 * 6 * 5 * 3);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = draws.normal(i);
    const Var image = Var::constant(Tensor::of<double>({2, 6, 5, 3}, x).to(parameters.dtype()));
    const std::int32_t labels[] = {static_cast<std::int32_t>(index % 7), 3};
    const Var h = middle((*conv2_)(relu((*conv1_)(image))));
    const Var y = (*fc_)(global_avg_pool((*conv3_)(relu((*conv3_)(h)))));
    return cross_entropy(y, Tensor::of<std::int32_t>({2}, labels), 0.1, 0.5);
  }

  void backward_of(int index) {
    backward(loss(index));
    weights.finish_backward();
  }
  /// theta −= rate · gradient
  void descend(double rate) {
    const auto step = [&]<class T>(T* theta, const T* g) {
      for (std::int64_t i = 0; i < parameters.values().size(); ++i) theta[i] -= static_cast<T>(rate) * g[i];
    };
    if (parameters.dtype() == DType::f64)
      step(parameters.values().data<double>(), parameters.gradients().data<double>());
    else
      step(parameters.values().data<float>(), parameters.gradients().data<float>());
    parameters.values_changed();
    parameters.zero_gradients();
  }

  static PlanOptions options(const Settings& s) {
    return {
        .budget = Budget::parse(s.budget), .mapping = s.mapping, .templates = s.templates, .seed = s.seed};
  }

  Parameters parameters;
  SharedWeights weights;

 private:
  std::optional<Conv2d> conv1_, spare_, conv2_, conv3_;
  std::optional<Linear> fc_;
};

Settings with(Settings s, WeightPolicy policy) {
  s.policy = policy;
  return s;
}

/// Tiny work many times: threads would only wait for each other.
class OneThread {
 public:
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

void expect_same_training(const Settings& s, const std::string& what) {
  Fixture lean(with(s, WeightPolicy::lean)), eager(with(s, WeightPolicy::eager));
  ASSERT_TRUE(same_bits(lean.parameters.values(), eager.parameters.values())) << what;
  for (int step = 0; step < 3; ++step) {
    for (Fixture* f : {&lean, &eager}) f->backward_of(step);
    ASSERT_TRUE(same_bits(lean.parameters.gradients(), eager.parameters.gradients())) << what;
    for (const double g : test::values_of(lean.parameters.gradients())) ASSERT_TRUE(std::isfinite(g)) << what;
    for (Fixture* f : {&lean, &eager}) f->descend(0.1);
    ASSERT_TRUE(same_bits(lean.parameters.values(), eager.parameters.values())) << what;
  }
}

TEST(SharedWeightsTest, TheFixtureHasAllThreeMethods) {
  const Plan plan = Fixture().weights.plan();
  EXPECT_EQ(plan.layers[0].method, Method::exact);
  EXPECT_EQ(plan.layers[1].tiles, 2);
  EXPECT_EQ(plan.layers[3].offsets.size(), 4u);
  EXPECT_EQ(plan.original, 108 + 180 + 225 + 35 + 7);
  EXPECT_EQ(plan.total, 150 + 9 + 4 + 7);
}

TEST(SharedWeightsTest, LeanAndEagerTrainToTheSameBits) {
  const Mapping two{MappingKind::random, 2}, three{MappingKind::random, 3};
  expect_same_training({}, "150");
  expect_same_training({.budget = "1000"}, "1000");
  expect_same_training({.budget = "1"}, "1");
  expect_same_training({.budget = "dense"}, "dense");
  expect_same_training({.budget = "40%", .mapping = two}, "two groups");
  expect_same_training({.budget = "3x", .mapping = three, .with_spare = true}, "spare layer");
  expect_same_training({.budget = "60", .dtype = DType::f64}, "f64");
}

TEST(SharedWeightsTest, LeanAndEagerAgreeAtAnyBudget) {
  const OneThread one_thread;
  const Random draws(1, "budgets");
  for (std::uint64_t i = 0; i < 60; ++i) {
    const int groups = static_cast<int>(draws.below(6, 3 * i));
    const std::int64_t budget =
        5 + draws.below(std::int64_t{1} << (3 + draws.below(9, 3 * i + 1)), 3 * i + 2);
    const Settings s{.budget = std::to_string(budget),
                     .mapping = groups ? Mapping{MappingKind::random, groups} : Mapping{},
                     .templates = static_cast<int>(1 + i % 9),
                     .seed = i,
                     .with_spare = true};
    expect_same_training(s, fmt::format("budget {}, {} groups, seed {}", budget, groups, i));
  }
}

void expect_true_gradient(const Settings& s, const std::string& what) {
  Fixture f(s);
  f.backward_of(2);
  const NoGrad no_grad;
  const double h = 1e-5;
  for (const FlatRange& range : f.parameters.stretches())
    for (std::int64_t i = range.first; i < range.first + range.size; ++i) {
      double& theta = f.parameters.values().data<double>()[i];
      const double start = theta;
      const auto loss_at = [&](double value) {
        theta = value;
        f.parameters.values_changed();
        return f.loss(2).value().data<double>()[0];
      };
      const double slope = (loss_at(start + h) - loss_at(start - h)) / (2 * h);
      loss_at(start);
      const double g = f.parameters.gradients().data<double>()[i];
      ASSERT_TRUE(std::abs(g - slope) <= 1e-8 + 1e-6 * std::abs(slope))
          << what << ": element " << i << ": " << g << ", slope " << slope;
    }
}

TEST(SharedWeightsTest, GradientsAreTheSlopes) {
  const OneThread one_thread;
  for (const WeightPolicy policy : {WeightPolicy::lean, WeightPolicy::eager}) {
    Settings s{.policy = policy, .dtype = DType::f64};
    for (const char* budget : {"40", "150", "500", "largest", "dense"}) {
      s.budget = budget;
      expect_true_gradient(s, fmt::format("{}, {}", name_of(policy), budget));
    }
    s.mapping = {MappingKind::random, 2};
    s.budget = "200";
    expect_true_gradient(s, fmt::format("{}, two groups", name_of(policy)));
  }
}

TEST(SharedWeightsTest, TheNetworkWithoutSharingUsesItsParametersAsTheyAre) {
  Fixture f({.budget = "dense"});
  for (int l = 0; l < 4; ++l) {
    const Var w = f.weights.use(l);
    const Tensor theta = f.parameters.entry(fmt::format("group{}", l)).leaf.value();
    EXPECT_EQ(w.value().raw(), theta.raw());
    EXPECT_EQ(w.shape(), f.weights.plan().layers[l].shape);
  }
}

class BothPolicies : public testing::TestWithParam<WeightPolicy> {};
INSTANTIATE_TEST_SUITE_P(Policy, BothPolicies, testing::Values(WeightPolicy::lean, WeightPolicy::eager),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST_P(BothPolicies, AGroupIsReportedOnceWithItsWholeGradient) {
  Fixture f({.policy = GetParam(),
             .budget = "400",
             .mapping = {MappingKind::random, 3},
             .seed = 1,
             .with_spare = true});
  const std::vector<PlannedGroup>& groups = f.weights.plan().groups;
  const auto gradient = [&](int g) { return f.parameters.entry(fmt::format("group{}", g)).leaf.grad(); };
  std::vector<std::pair<int, Tensor>> reports;
  f.weights.on_group_complete([&](int g) { reports.emplace_back(g, gradient(g).clone()); });
  for (int step = 0; step < 3; ++step) {
    reports.clear();
    backward(f.loss(step));
    const std::size_t in_backward = reports.size();
    f.weights.finish_backward();
    ASSERT_EQ(reports.size(), groups.size());
    std::vector<int> seen(groups.size());
    for (const auto& [g, then] : reports) {
      ++seen[g];
      EXPECT_TRUE(same_bits(then, gradient(g)));
    }
    EXPECT_EQ(seen, std::vector<int>(groups.size(), 1));
    // All that are used are reported in backward(), in the order in which the tape leaves them.
    std::vector<int> expected;
    for (const int l : {4, 3, 2, 0}) {  // fc, conv3, conv2, conv1
      const int g = f.weights.plan().layers[l].group;
      const auto& members = groups[g].layers;
      const int first_used = members[0] == 1 && members.size() > 1 ? members[1] : members[0];
      if (first_used == l) expected.push_back(g);
    }
    ASSERT_EQ(in_backward, expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(reports[i].first, expected[i]);
    f.parameters.zero_gradients();
  }
}

TEST_P(BothPolicies, WhatIsNotUsedIsReportedAtTheEnd) {
  Fixture f({.policy = GetParam(), .budget = "dense", .with_spare = true});
  std::vector<int> reports;
  f.weights.on_group_complete([&](int g) { reports.push_back(g); });
  backward(f.loss(0));
  EXPECT_EQ(reports, (std::vector{4, 3, 2, 0}));
  f.weights.finish_backward();
  EXPECT_EQ(reports, (std::vector{4, 3, 2, 0, 1}));
  reports.clear();
  f.weights.finish_backward();  // a step in which nothing is used
  EXPECT_EQ(reports, (std::vector{0, 1, 2, 3, 4}));
}

TEST_P(BothPolicies, OnlyTheLastMicroBatchReports) {
  const Settings s{.policy = GetParam(), .mapping = {MappingKind::random, 2}};
  Fixture f(s), alone(s);
  int reports = 0;
  f.weights.on_group_complete([&](int) { ++reports; });
  f.weights.set_reporting(false);
  f.backward_of(0);
  EXPECT_EQ(reports, 0);
  f.weights.set_reporting(true);
  f.backward_of(1);
  EXPECT_EQ(reports, 2);
  std::vector<double> sum = test::values_of(f.parameters.gradients());
  for (int micro = 0; micro < 2; ++micro) {
    alone.parameters.zero_gradients();
    alone.backward_of(micro);
    const std::vector<double> part = test::values_of(alone.parameters.gradients());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] -= part[i];
  }
  EXPECT_TRUE(test::close(sum, std::vector<double>(sum.size(), 0), 1e-6, 1));
}

TEST_P(BothPolicies, TwoForwardPassesThenOneBackward) {
  const Settings s{.policy = GetParam(), .mapping = {MappingKind::random, 2}};
  Fixture f(s), by_parts(s);
  int reports = 0;
  f.weights.on_group_complete([&](int) { ++reports; });
  const Var a = f.loss(0), b = f.loss(1);
  backward(add(a, b));
  EXPECT_EQ(reports, 2);
  f.weights.finish_backward();
  EXPECT_EQ(reports, 2);
  by_parts.weights.set_reporting(false);
  by_parts.backward_of(1);
  by_parts.backward_of(0);
  EXPECT_TRUE(test::close(test::values_of(f.parameters.gradients()),
                          test::values_of(by_parts.parameters.gradients()), 1e-5));
}

TEST_P(BothPolicies, AFailedForwardLeavesNothingBehind) {
  const Settings s{.policy = GetParam(), .mapping = {MappingKind::random, 2}};
  Fixture f(s), untroubled(s);
  std::vector<int> reports;
  f.weights.on_group_complete([&](int g) { reports.push_back(g); });
  EXPECT_THROW(
      {
        const Var graph = f.loss(0);
        linear(graph, f.weights.use(1));  // no matrix
      },
      Error);
  backward(f.loss(1));
  EXPECT_EQ(reports.size(), 2u);  // in backward(): no use of the failed pass is waited for
  f.weights.finish_backward();
  untroubled.backward_of(1);
  EXPECT_TRUE(same_bits(f.parameters.gradients(), untroubled.parameters.gradients()));
}

TEST_P(BothPolicies, AFailedBackwardCanBeAbandoned) {
  const Settings s{.policy = GetParam()};
  Fixture f(s), untroubled(s);
  const auto failing = [](const Var& x) {
    return Var::result(x.value(), {x}, [](const Tensor&, auto) { fail("failing", "as planned"); });
  };
  EXPECT_THROW(backward(f.loss(0, failing)), Error);  // when the gradients of fc and conv3 have arrived
  f.weights.abandon_backward();
  f.parameters.zero_gradients();
  f.backward_of(1);
  untroubled.backward_of(1);
  EXPECT_TRUE(same_bits(f.parameters.gradients(), untroubled.parameters.gradients()));
}

TEST_P(BothPolicies, AGradientAfterTheReportIsAnError) {
  Fixture f({.policy = GetParam()});
  backward(f.loss(0));
  try {
    backward(f.loss(1));
    FAIL() << "the group was reported before its gradient was complete";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("finish_backward()"), std::string::npos) << e.what();
  }
}

TEST_P(BothPolicies, AGraphMayOutliveTheWeights) {
  std::optional<Fixture> f(std::in_place, Settings{.policy = GetParam()});
  const Var loss = f->loss(0);
  f.reset();
  EXPECT_TRUE(std::isfinite(test::values_of(loss.value())[0]));
}

TEST(SharedWeightsTest, EagerGeneratesOnceForEachChangeOfTheValues) {
  Fixture f({.budget = "500"});
  const NoGrad no_grad;
  const Tensor w = f.weights.use(0).value();
  const Tensor before = w.clone();
  EXPECT_EQ(f.weights.use(0).value().raw(), w.raw());
  f.parameters.values().fill(0.5);
  EXPECT_TRUE(same_bits(f.weights.use(0).value(), before));  // not told yet
  f.parameters.values_changed();
  const std::size_t k = f.weights.plan().layers[0].offsets.size();
  EXPECT_EQ(f.weights.use(0).value().data<float>()[5], 0.25f * static_cast<float>(k));
}

TEST(SharedWeightsTest, WrongOrderOfCalls) {
  Parameters parameters;
  SharedWeights weights(parameters, {.budget = Budget::parse("9")});
  EXPECT_THROW(weights.plan(), Error);
  EXPECT_THROW(weights.build(), Error);  // no layers
  weights.request({"a", WeightKind::linear, {2, 5}, 5});
  EXPECT_THROW(weights.use(0), Error);
  weights.build();
  EXPECT_THROW(weights.build(), Error);
  EXPECT_THROW(weights.request({"b", WeightKind::linear, {2, 5}, 5}), Error);
  EXPECT_THROW(weights.use(0), Error);  // before Parameters::build()
  parameters.add("late", {3}, Section::ordinary, false, [](std::int64_t) { return 0.0; });
  parameters.build();
  EXPECT_THROW(weights.use(0), Error);  // the plan does not count `late`
}

TEST(SharedWeightsTest, SectionsDecayAndNames) {
  Fixture f({.budget = "150"});
  EXPECT_EQ(f.parameters.count(Section::group), 150);
  EXPECT_EQ(f.parameters.count(Section::mask), 9);
  EXPECT_EQ(f.parameters.count(Section::coefficient), 4);
  EXPECT_TRUE(f.parameters.entry("group0").decay);
  EXPECT_TRUE(f.parameters.entry("group0.mask").decay);
  EXPECT_FALSE(f.parameters.entry("fc.alpha").decay);
  EXPECT_EQ(weight_policy("lean"), WeightPolicy::lean);
  EXPECT_THROW(weight_policy("thrifty"), UsageError);
}

}  // namespace
}  // namespace ssn
