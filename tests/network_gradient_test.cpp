// Gradients of one small network of each family with shared weights, in f64: the slopes.
#include <gtest/gtest.h>

#include "tests/close.h"
#include "tests/families.h"
#include "tests/random_plans.h"
#include "tests/small_network.h"

namespace ssn::test {
namespace {

class NetworkGradient : public testing::TestWithParam<std::tuple<int, WeightPolicy>> {};
INSTANTIATE_TEST_SUITE_P(Every, NetworkGradient,
                         testing::Combine(testing::Range(0, static_cast<int>(std::size(kFamilies))),
                                          testing::Values(WeightPolicy::lean, WeightPolicy::eager)),
                         [](const auto& p) {
                           std::string name = kFamilies[std::get<0>(p.param)].name;
                           std::ranges::replace(name, '-', '_');
                           return fmt::format("{}_{}", name, name_of(std::get<1>(p.param)));
                         });

TEST_P(NetworkGradient, IsTheSlope) {
  const OneThread one_thread;
  const Family& f = kFamilies[std::get<0>(GetParam())];
  Parameters parameters(DType::f64);
  SharedWeights weights(parameters, {.budget = Budget::parse("30%"), .mapping = {.kind = MappingKind::type}},
                        std::get<1>(GetParam()));
  const auto network = make_network(f.name, f.task, {weights, parameters}, f.size);
  weights.build();
  parameters.build();
  const Random draws(2, f.name);
  std::uint64_t draw = 0;
  for (double& v : parameters.values().span<double>()) v += 0.2 * draws.normal(draw++);  // gains may be 0
  parameters.values_changed();
  Tensor images = Tensor::empty({4, f.task.height, f.task.width, f.task.channels}, DType::f64);
  for (double& v : images.span<double>()) v = draws.normal(draw++);
  const std::vector<std::int32_t> classes = {0, 2, 1, 1};
  const Tensor labels = Tensor::of<std::int32_t>({4}, classes);
  const auto loss = [&] {
    return cross_entropy(network->forward({.images = images}, {.training = true, .seed = 3, .step = 3}),
                         labels, 0, 0.25);
  };
  backward(loss());
  weights.finish_backward();

  const NoGrad no_grad;
  const auto loss_at = [&](double& theta, double value) {
    theta = value;
    parameters.values_changed();
    return values_of(loss().value())[0];
  };
  Dice dice(8);
  const double h = 3e-7;  // slopes are up to thousands, and bent
  int nonzero = 0, checked = 0;
  for (const Parameters::Entry& e : parameters.entries())
    for (int sample = 0; sample < (e.section == Section::group ? 12 : 2); ++sample) {
      const std::int64_t i = e.range.first + dice.below(e.range.size);
      double& theta = parameters.values().data<double>()[i];
      const double start = theta;
      const double slope = (loss_at(theta, start + h) - loss_at(theta, start - h)) / (2 * h);
      loss_at(theta, start);
      const double g = parameters.gradients().data<double>()[i];
      ++checked;
      nonzero += std::abs(slope) > 1e-5;
      EXPECT_NEAR(g, slope, 1e-6 + 1e-5 * std::abs(slope)) << e.name << "[" << i - e.range.first << "]";
    }
  EXPECT_GT(2 * nonzero, checked);
}

}  // namespace
}  // namespace ssn::test
