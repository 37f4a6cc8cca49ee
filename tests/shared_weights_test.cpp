// Shared weights in a small network: both policies give the same bits and true gradients, groups are reported
// once and at the right time.
#include "ssn/shared_weights.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>

#include "tests/close.h"
#include "tests/random_plans.h"
#include "tests/small_network.h"

namespace ssn {
namespace {

using test::same_bits;

using test::OneThread;
using Settings = test::NetworkSettings;
using Fixture = test::SmallNetwork;

Settings with(Settings s, WeightPolicy policy) {
  s.policy = policy;
  return s;
}

void expect_same_training(const Settings& s, const std::string& what) {
  Fixture lean(with(s, WeightPolicy::lean)), eager(with(s, WeightPolicy::eager));
  ASSERT_TRUE(same_bits(lean.parameters.values(), eager.parameters.values())) << what;
  for (int step = 0; step < 3; ++step) {
    for (Fixture* f : {&lean, &eager}) f->backward_of(step);
    ASSERT_TRUE(same_bits(lean.parameters.gradients(), eager.parameters.gradients())) << what;
    for (const double g : test::values_of(lean.parameters.gradients())) ASSERT_TRUE(std::isfinite(g)) << what;
    for (Fixture* f : {&lean, &eager}) f->descend(1e-4);
    ASSERT_TRUE(same_bits(lean.parameters.values(), eager.parameters.values())) << what;
  }
}

TEST(SharedWeightsTest, TheFixtureHasAllThreeMethods) {
  const Plan plan = Fixture().weights.plan();
  EXPECT_EQ(plan.layers[0].method, Method::exact);
  EXPECT_EQ(plan.layers[1].tiles, 2);
  EXPECT_EQ(plan.layers[3].offsets.size(), 4u);
  EXPECT_EQ(plan.original, 108 + 180 + 225 + 35 + 7);
  EXPECT_EQ(plan.total, 150 + 9 + 24 + 4 * 25 + 7);
}

TEST(SharedWeightsTest, LeanAndEagerTrainToTheSameBits) {
  const Mapping two{MappingKind::random, 2}, three{MappingKind::random, 3};
  expect_same_training({}, "150");
  expect_same_training({.budget = "1000"}, "1000");
  expect_same_training({.budget = "1"}, "1");
  expect_same_training({.budget = "dense"}, "dense");
  expect_same_training({.budget = "40%", .plan = {.mapping = two}}, "two groups");
  expect_same_training({.budget = "3x", .plan = {.mapping = three}, .with_spare = true}, "spare layer");
  expect_same_training({.budget = "60", .dtype = DType::f64}, "f64");
}

TEST(SharedWeightsTest, LeanAndEagerAgreeForAnyOptionsAndBudget) {
  const OneThread one_thread;
  test::Dice dice(1);
  int trained = 0;
  for (int trial = 0; trial < 150; ++trial) {
    Settings s{.plan = test::random_options(dice, 5), .with_spare = true};
    s.budget = std::to_string(5 + dice.below(std::int64_t{1} << (3 + dice.below(9))));
    try {
      Fixture{s};
    } catch (const UsageError&) {
      continue;  // too small for all that is counted, or for the published rule
    }
    ++trained;
    expect_same_training(s, fmt::format("trial {}, budget {}, {} {}", trial, s.budget,
                                        name_of(s.plan.combine), name_of(s.plan.upsample)));
  }
  EXPECT_GT(trained, 100);
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
             .plan = {.mapping = {MappingKind::random, 3}, .seed = 1},
             .with_spare = true});
  const std::vector<PlannedGroup>& groups = f.weights.plan().groups;
  const auto gradient = [&](int g) { return f.parameters.entry(fmt::format("group{}", g)).leaf.grad(); };
  std::vector<std::pair<int, Tensor>> reports;
  f.weights.on_complete(
      [&](const Completion& c) { reports.emplace_back(c.group, gradient(c.group).clone()); });
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

/// A step in which groups are reported in the smallest parts: all elements once, each with its final
/// gradient, which is that of whole groups. Returns the number of reports before the pass has ended.
std::size_t expect_true_parts(const Settings& s, const std::string& what) {
  Fixture whole(s), parts(s);
  const Tensor gradients = parts.parameters.gradients();
  std::vector<std::pair<FlatRange, Tensor>> reports;
  RangeSet reported;
  const auto record = [&](const Completion& c) {
    reported.add(c.range);
    reports.emplace_back(c.range, gradients.slice(c.range.first, Shape{c.range.size}).clone());
  };
  parts.weights.on_complete(record, 1);
  backward(parts.loss(0));
  const std::size_t in_backward = reports.size();
  parts.weights.finish_backward();
  whole.backward_of(0);
  EXPECT_TRUE(same_bits(gradients, whole.parameters.gradients())) << what;
  for (const auto& [range, then] : reports)
    EXPECT_TRUE(same_bits(then, gradients.slice(range.first, Shape{range.size}))) << what;
  for (std::size_t g = 0; g < parts.weights.plan().groups.size(); ++g)
    EXPECT_TRUE(reported.gaps(parts.parameters.stretches()[g]).empty()) << what;
  return in_backward;
}

TEST_P(BothPolicies, PartsOfGroupsAreReportedWithTheirWholeGradient) {
  const OneThread one_thread;
  test::Dice dice(2);
  std::size_t reports = 0, groups = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Settings s{.policy = GetParam(), .plan = test::random_options(dice, 5), .with_spare = true};
    s.budget = std::to_string(50 + dice.below(2000));
    try {
      groups += Fixture{s}.weights.plan().groups.size();
    } catch (const UsageError&) {
      continue;
    }
    reports += expect_true_parts(s, fmt::format("trial {}, budget {}", trial, s.budget));
  }
  EXPECT_GT(reports, groups + 20);
}

TEST_P(BothPolicies, APartIsReportedBeforeTheLayersThatDoNotUseItAreDone) {
  Fixture f({.policy = GetParam(), .budget = "1000", .plan = {.combine = Combine::avg}});
  std::vector<FlatRange> in_order;
  f.weights.on_complete([&](const Completion& c) { in_order.push_back(c.range); }, 50);
  backward(f.loss(0));
  ASSERT_GT(in_order.size(), 1u);
  EXPECT_GT(in_order.front().first, in_order.back().first) << "the first layer uses the beginning alone";
  for (const FlatRange& range : in_order) EXPECT_GE(range.size, 50);
  f.weights.finish_backward();
}

TEST_P(BothPolicies, WhatIsNotUsedIsReportedAtTheEnd) {
  Fixture f({.policy = GetParam(), .budget = "dense", .with_spare = true});
  std::vector<int> reports;
  f.weights.on_complete([&](const Completion& c) { reports.push_back(c.group); });
  backward(f.loss(0));
  EXPECT_EQ(reports, (std::vector{4, 3, 2, 0}));
  f.weights.finish_backward();
  EXPECT_EQ(reports, (std::vector{4, 3, 2, 0, 1}));
  reports.clear();
  f.weights.finish_backward();  // a step in which nothing is used
  EXPECT_EQ(reports, (std::vector{0, 1, 2, 3, 4}));
}

TEST_P(BothPolicies, OnlyTheLastMicroBatchReports) {
  const Settings s{.policy = GetParam(), .plan = {.mapping = {MappingKind::random, 2}}};
  Fixture f(s), alone(s);
  int reports = 0;
  f.weights.on_complete([&](const Completion&) { ++reports; });
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
  const Settings s{.policy = GetParam(), .plan = {.mapping = {MappingKind::random, 2}}};
  Fixture f(s), by_parts(s);
  int reports = 0;
  f.weights.on_complete([&](const Completion&) { ++reports; });
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
  const Settings s{.policy = GetParam(), .plan = {.mapping = {MappingKind::random, 2}}};
  Fixture f(s), untroubled(s);
  std::vector<int> reports;
  f.weights.on_complete([&](const Completion& c) { reports.push_back(c.group); });
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

TEST_P(BothPolicies, AUseGetsTheFormatThatItWants) {
  Fixture f({.policy = GetParam(), .budget = "500", .plan = {.combine = Combine::wavg}});
  const Shape shape = f.weights.plan().layers[1].shape;
  ASSERT_EQ(shape.rank(), 4);
  const WeightFormat formats[] = {{}, {true, true}, {false, true}, {true, false}, {true, true}};
  const Tensor plain = f.weights.use(1).value().clone(), grad = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < grad.size(); ++i)
    grad.data<float>()[i] = 0.25f * static_cast<float>(i % 31) - 3;
  const auto gradients_of = [&](const WeightFormat& format) {
    const Var w = f.weights.use(1, format);
    EXPECT_TRUE(same_bits(w.value(), reformatted(plain, shape, {}, format)));
    const Tensor gw = reformatted(grad, shape, {}, {.channels_last = format.channels_last});
    backward({&w, 1}, {&gw, 1});
    f.weights.finish_backward();
    const Tensor all = f.parameters.gradients().clone();
    f.parameters.zero_gradients();
    return all;
  };
  const Tensor want = gradients_of({});
  EXPECT_NE(test::values_of(want), std::vector<double>(static_cast<std::size_t>(want.size()), 0));
  for (const WeightFormat& format : formats) EXPECT_TRUE(same_bits(gradients_of(format), want));
  f.parameters.values_changed();  // eager: then all of the group in the formats of their last uses
  for (const WeightFormat& format : formats) EXPECT_TRUE(same_bits(gradients_of(format), want));
}

TEST_P(BothPolicies, AGraphMayOutliveTheWeights) {
  std::optional<Fixture> f(std::in_place, Settings{.policy = GetParam()});
  const Var loss = f->loss(0);
  f.reset();
  EXPECT_TRUE(std::isfinite(test::values_of(loss.value())[0]));
}

TEST(SharedWeightsTest, EagerGeneratesOnceForEachChangeOfTheValues) {
  Fixture f({.budget = "500", .plan = {.combine = Combine::wavg}});
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

TEST(SharedWeightsTest, AnEvaluationAtAHighBudgetGeneratesNothingNew) {
  Fixture f({.budget = "4x"});
  for (const PlannedLayer& l : f.weights.plan().layers) ASSERT_EQ(l.method, Method::templates);
  const NoGrad no_grad;
  const auto weights = [&] {
    std::vector<void*> places;
    f.loss(1);
    for (int l = 0; l < 4; ++l) places.push_back(f.weights.use(l).value().raw());
    return places;
  };
  const std::vector<void*> first = weights();
  f.parameters.values().fill(7);  // without values_changed(): whatever is generated now, is seen
  const Tensor before = f.weights.use(0).value().clone();
  EXPECT_EQ(weights(), first);
  EXPECT_TRUE(same_bits(f.weights.use(0).value(), before));
  f.parameters.values_changed();
  EXPECT_FALSE(same_bits(f.weights.use(0).value(), before));
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
  using Names = std::map<std::string, std::pair<std::int64_t, bool>>;  // size and decay
  const auto beside_theta = [](PlanOptions plan, const std::string& budget) {
    Fixture f({.budget = budget, .plan = plan});
    Names names;
    for (const Parameters::Entry& e : f.parameters.entries()) {
      EXPECT_TRUE(e.section != Section::group || (e.decay && e.name == "group0")) << e.name;
      if (e.section == Section::group || e.section == Section::ordinary) continue;
      EXPECT_EQ(e.section, e.name.ends_with(".mask") ? Section::mask : Section::coefficient);
      names[e.name] = {e.shape.size(), e.decay};
    }
    return names;
  };
  EXPECT_EQ(beside_theta({}, "150"), (Names{{"group0.mask", {9, true}},
                                            {"fc.phi", {24, false}},
                                            {"group0.projection4", {96, true}},
                                            {"group0.projection4.bias", {4, true}}}));
  EXPECT_EQ(beside_theta({.embedding = 3, .masks = MaskScope::layer}, "75"),
            (Names{{"conv1.mask", {9, true}},
                   {"conv2.mask", {18, true}},
                   {"conv3.mask", {18, true}},
                   {"fc.phi", {3, false}},
                   {"group0.projection2", {6, true}},
                   {"group0.projection2.bias", {2, true}}}));
  EXPECT_EQ(beside_theta({.combine = Combine::wavg, .upsample = Upsample::inter, .window = 4}, "150"),
            (Names{{"fc.alpha", {4, false}}}));
  EXPECT_EQ(beside_theta({.combine = Combine::avg, .upsample = Upsample::repeat}, "150"), Names{});
  EXPECT_EQ(
      beside_theta({.combine = Combine::wavg, .templates = 2, .allocation = Allocation::resized}, "150"),
      (Names{{"conv1.alpha", {2, false}},
             {"conv2.alpha", {2, false}},
             {"conv3.alpha", {2, false}},
             {"fc.alpha", {2, false}}}));
  EXPECT_EQ(value_named<WeightPolicy>("lean"), WeightPolicy::lean);
  EXPECT_THROW(value_named<WeightPolicy>("thrifty"), UsageError);
}

TEST(SharedWeightsTest, CoefficientsOfASoftmaxSumToOne) {
  for (const Combine combine : {Combine::emb, Combine::wavg})
    for (const Allocation allocation : {Allocation::cursor, Allocation::resized}) {
      PlanOptions plan{.combine = combine, .softmax = true, .gain = Gain::off, .allocation = allocation};
      Fixture f({.budget = "500", .plan = plan});
      f.parameters.entry("group0").leaf.value().fill(1);
      f.parameters.values_changed();
      for (int l = 0; l < 4; ++l) {
        ASSERT_GT(f.weights.plan().layers[l].offsets.size(), 1u);
        const std::vector<double> w = test::values_of(f.weights.use(l).value());
        EXPECT_TRUE(test::close(w, std::vector<double>(w.size(), 1), 1e-6));
      }
    }
}

TEST(SharedWeightsTest, GainsGiveTheDeviationWithoutSharing) {
  // One large layer, a second and third of other sizes; the start's mean square over many seeds' values.
  for (const Combine combine : {Combine::emb, Combine::wavg, Combine::avg, Combine::rr})
    for (const Upsample upsample : {Upsample::mask, Upsample::inter, Upsample::repeat})
      for (const Allocation allocation : {Allocation::cursor, Allocation::resized}) {
        PlanOptions o{.budget = Budget::parse("20000"),
                      .combine = combine,
                      .upsample = upsample,
                      .gain = Gain::on,
                      .allocation = allocation,
                      .seed = 4};
        Parameters parameters;
        SharedWeights weights(parameters, o);
        weights.request({"large", WeightKind::linear, {210, 200}, 200});
        weights.request({"small", WeightKind::linear, {40, 70}, 70});
        weights.request({"other", WeightKind::linear, {80, 36}, 36});
        weights.build();
        parameters.build();
        for (int l = 0; l < 3; ++l) {
          double sum = 0;
          const std::vector<double> w = test::values_of(weights.use(l).value());
          for (const double x : w) sum += x * x;
          const double wanted = 2.0 / static_cast<double>(weights.plan().layers[l].fan_in);
          EXPECT_NEAR(sum / static_cast<double>(w.size()) / wanted, 1, 0.15)
              << name_of(combine) << " " << name_of(upsample) << " " << name_of(allocation) << " layer " << l;
        }
      }
}

}  // namespace
}  // namespace ssn
