// Segments that are computed again in backward: the same training, in less memory.
#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include "autograd/optimizer.h"
#include "layers/models/outline.h"
#include "runtime/dry_run.h"
#include "tests/close.h"
#include "tests/small_network.h"

namespace ssn {
namespace {

using Choice = std::function<bool(std::string_view)>;

/// Three steps of a network, and what is to be the same of them.
struct Trained {
  std::vector<double> values, statistics;
  std::vector<int> reports;

  bool operator==(const Trained&) const = default;
};

Trained train(const std::string& name, WeightPolicy policy, const Choice& recompute) {
  const test::OneThread one_thread;
  const NetworkTask task{.channels = 2, .height = 9, .width = 8, .classes = 3};
  Parameters parameters;
  SharedWeights weights(parameters, {.budget = Budget::parse("20%"), .mapping = {.kind = MappingKind::type}},
                        policy);
  const auto network = make_network(name, task, {weights, parameters});
  weights.build();
  parameters.build();
  const auto optimizer = make_optimizer({}, parameters);
  Trained result;
  weights.on_complete([&](const Completion& c) { result.reports.push_back(c.group); });
  const Random draws(3, "images");
  NetworkInput input = zeros_for(task, 4);
  for (int step = 0; step < 3; ++step) {
    for (std::int64_t i = 0; i < input.images.size(); ++i)
      input.images.data<float>()[i] = static_cast<float>(draws.normal(i + 1000 * step));
    const Var logits = network->forward(input, {.training = true, .step = step, .recompute = recompute});
    const std::vector<std::int32_t> labels = {0, 1, 2, 1};
    backward(cross_entropy(logits, Tensor::of<std::int32_t>({4}, labels), 0, 0.25));
    weights.finish_backward();
    optimizer->step(parameters, 0.05);
    parameters.zero_gradients();
  }
  result.values = test::values_of(parameters.values());
  for (const Parameters::Buffer& b : parameters.buffers())
    for (const double v : test::values_of(b.tensor)) result.statistics.push_back(v);
  return result;
}

class Networks : public testing::TestWithParam<std::tuple<const char*, WeightPolicy>> {};
INSTANTIATE_TEST_SUITE_P(Recompute, Networks,
                         testing::Combine(testing::Values("wrn-16-1", "resnet-20", "wrn-50-1",
                                                          "efficientnet-b0"),
                                          testing::Values(WeightPolicy::lean, WeightPolicy::eager)));

TEST_P(Networks, TrainToTheSameBits) {
  const auto& [name, policy] = GetParam();
  const Trained kept = train(name, policy, {});
  std::vector<std::string> asked;
  const Trained all = train(name, policy, [&](std::string_view segment) {
    asked.emplace_back(segment);
    return true;
  });
  EXPECT_EQ(all.values, kept.values);
  EXPECT_EQ(all.statistics, kept.statistics);
  EXPECT_EQ(all.reports, kept.reports) << "groups are complete at the same places";
  EXPECT_GE(asked.size(), 16u);
  const Trained some = train(name, policy, [&](std::string_view segment) { return segment == asked[1]; });
  EXPECT_EQ(some, kept);
}

// Several segments read one value: what each adds to its gradient is then rounded by itself.
TEST(Recompute, DenseConnectionsTrainToTheSameToRounding) {
  const Trained kept = train("densenet-40-3", WeightPolicy::lean, {});
  const Trained all = train("densenet-40-3", WeightPolicy::lean, [](std::string_view) { return true; });
  EXPECT_TRUE(test::close(all.values, kept.values, 1e-4));
  EXPECT_EQ(all.reports, kept.reports);
}

/// The most that is in use in a forward and backward pass.
std::size_t peak(const std::string& name, const Choice& recompute) {
  const DryRun dry_run;
  const NetworkTask task{.channels = 3, .height = 64, .width = 64, .classes = 10};
  Parameters parameters;
  SharedWeights weights(parameters, {.budget = Budget::parse("10%")});
  const auto network = make_network(name, task, {weights, parameters});
  weights.build();
  parameters.build();
  const Var logits = network->forward(zeros_for(task, 64), {.training = true, .recompute = recompute});
  backward(cross_entropy(logits, Tensor::zeros({64}, DType::i32), 0, 1));
  weights.finish_backward();
  return dry_run.stats().peak;
}

TEST(Recompute, TakesLessMemory) {
  const std::size_t kept = peak("wrn-40-2", {});
  const std::size_t less = peak("wrn-40-2", [](std::string_view name) { return name.starts_with("block1"); });
  const std::size_t least = peak("wrn-40-2", [](std::string_view) { return true; });
  EXPECT_LT(static_cast<double>(less), 0.7 * static_cast<double>(kept));
  EXPECT_LT(static_cast<double>(least), 0.35 * static_cast<double>(kept));
}

TEST(Recompute, TheGradientIsThatOfTheFunction) {
  const auto f = [](std::span<const Var> in) { return relu(add(bias_add(in[0], in[1]), in[0])); };
  std::vector<double> grads[2];
  for (const bool again : {false, true}) {
    const Var x = Var::leaf(Tensor::of<double>({2, 2}, std::vector<double>{1, -2, 3, 4}));
    const Var b = Var::leaf(Tensor::of<double>({2}, std::vector<double>{-1, 0.5}));
    const Var y = again ? recomputed({x, b}, f) : f(std::vector<Var>{x, b});
    const Tensor gy = Tensor::of<double>({2, 2}, std::vector<double>{1, 10, 100, 1000});
    const Var z = add(y, x);
    backward({&z, 1}, {&gy, 1});
    for (const Var& v : {x, b})
      for (const double g : test::values_of(v.grad())) grads[again].push_back(g);
  }
  EXPECT_EQ(grads[0], grads[1]);
  EXPECT_EQ(grads[1], (std::vector<double>{3, 10, 300, 3000, 101, 1000}));
}

TEST(Recompute, WithoutATapeItIsTheFunction) {
  const NoGrad no_grad;
  int calls = 0;
  const Var x = Var::leaf(Tensor::zeros({2}, DType::f32));
  const Var y = recomputed({x}, [&](std::span<const Var> in) {
    ++calls;
    EXPECT_FALSE(recomputing());
    return relu(in[0]);
  });
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(y.wants_grad());
}

TEST(Recompute, WithinAnotherItIsTheFunction) {
  const auto gradient = [](bool nested) {
    const auto inner = [](std::span<const Var> in) { return relu(in[0]); };
    const Var x = Var::leaf(Tensor::of<double>({2}, std::vector<double>{-1, 2}));
    const Var y = recomputed({x}, [&](std::span<const Var> in) {
      return add(in[0], nested ? recomputed({in[0]}, inner) : inner(in));
    });
    const Tensor gy = Tensor::of<double>({2}, std::vector<double>{3, 5});
    backward({&y, 1}, {&gy, 1});
    return test::values_of(x.grad());
  };
  EXPECT_EQ(gradient(true), (std::vector<double>{3, 10}));
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(Recompute, AGraphThatIsDroppedDeclaresNothing) {
  const test::OneThread one_thread;
  test::SmallNetwork f;
  std::vector<int> reports;
  f.weights.on_complete([&](const Completion& c) { reports.push_back(c.group); });
  for (const bool keep : {false, true}) {
    const Var loss = recomputed({}, [&](std::span<const Var>) { return f.loss(0); });
    if (keep) backward(loss);
  }
  f.weights.finish_backward();
  EXPECT_EQ(reports, std::vector<int>{0});
}

TEST(DryRun, TakesWhatTheComputationTakes) {
  const test::OneThread one_thread;
  const auto step = [] {
    test::SmallNetwork f({.budget = "400"});
    f.backward_of(1);
    const Tensor large = Tensor::full({1 << 20}, 1, DType::f32);
    return large.clone().bytes();
  };
  trim_pool(Device::cpu);
  const PoolStats before = pool_stats(Device::cpu);
  step();
  const PoolStats after = pool_stats(Device::cpu);
  const DryRun dry_run;
  step();
  const auto real = static_cast<double>(after.held - before.held);
  EXPECT_NEAR(static_cast<double>(dry_run.stats().held), real, 0.001 * real) << "but for small workspaces";
  EXPECT_EQ(pool_stats(Device::cpu).held, after.held) << "nothing was taken of the real pool";
}

TEST(DryRun, GivesMoreThanThereIs) {
  Tensor huge;
  {
    const DryRun dry_run;
    huge = Tensor::zeros({std::int64_t{1} << 40}, DType::f32);
    huge.fill(1);
    EXPECT_EQ(dry_run.stats().in_use, std::size_t{1} << 42);
  }
  huge = {};  // after it
  EXPECT_FALSE(dry_run());
}

}  // namespace
}  // namespace ssn
