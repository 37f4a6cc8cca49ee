// Gradients of whole networks with shared weights: the slopes, for every way in which weights are made; and a
// step of training of random networks.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/optimizer.h"
#include "layers/norm.h"
#include "tests/close.h"
#include "tests/random_plans.h"
#include "tests/small_network.h"

namespace ssn {
namespace {

using test::Dice;
using test::OneThread;
using test::SmallNetwork;

/// The gradient of Σ cotangent · logits, at a sample of the elements of every parameter, against central
/// differences.
void expect_slopes(const test::NetworkSettings& s, const std::string& what) {
  SmallNetwork f(s);
  const Random draws(4, "cotangent");
  std::vector<double> cotangent(14);
  for (std::size_t i = 0; i < cotangent.size(); ++i) cotangent[i] = draws.normal(i);
  const Var y = f.logits(2);
  const Tensor gy = Tensor::of<double>({2, 7}, cotangent);
  backward({&y, 1}, {&gy, 1});
  f.weights.finish_backward();
  const NoGrad no_grad;
  const auto value_at = [&](double& theta, double value) {
    theta = value;
    f.parameters.values_changed();
    const std::vector<double> z = test::values_of(f.logits(2).value());
    double sum = 0;
    for (std::size_t i = 0; i < z.size(); ++i) sum += cotangent[i] * z[i];
    return sum;
  };
  Dice dice(8);
  const double h = 1e-5;
  for (const Parameters::Entry& e : f.parameters.entries()) {
    const std::int64_t samples = std::min<std::int64_t>(e.range.size, 25);
    for (std::int64_t n = 0; n < samples; ++n) {
      const std::int64_t i = e.range.first + (samples < e.range.size ? dice.below(e.range.size) : n);
      double& theta = f.parameters.values().data<double>()[i];
      const double start = theta;
      const double slope = (value_at(theta, start + h) - value_at(theta, start - h)) / (2 * h);
      value_at(theta, start);
      const double g = f.parameters.gradients().data<double>()[i];
      ASSERT_TRUE(std::abs(g - slope) <= 1e-7 + 1e-6 * std::abs(slope))
          << what << ": " << e.name << "[" << i - e.range.first << "]: " << g << ", slope " << slope;
    }
  }
}

class SharingGradientTest : public testing::TestWithParam<std::tuple<WeightPolicy, Combine, Upsample>> {};
INSTANTIATE_TEST_SUITE_P(Every, SharingGradientTest,
                         testing::Combine(testing::Values(WeightPolicy::lean, WeightPolicy::eager),
                                          testing::Values(Combine::emb, Combine::wavg, Combine::avg,
                                                          Combine::rr),
                                          testing::Values(Upsample::mask, Upsample::inter, Upsample::repeat)),
                         [](const auto& p) {
                           return fmt::format("{}_{}_{}", name_of(std::get<0>(p.param)),
                                              name_of(std::get<1>(p.param)), name_of(std::get<2>(p.param)));
                         });

TEST_P(SharingGradientTest, IsTheSlope) {
  const OneThread one_thread;
  const auto [policy, combine, upsample] = GetParam();
  const auto check = [&](const std::string& budget, const PlanOptions& plan, const std::string& what) {
    test::NetworkSettings s{.policy = policy, .budget = budget, .plan = plan, .dtype = DType::f64};
    s.plan.combine = combine;
    s.plan.upsample = upsample;
    s.plan.seed = 3;
    expect_slopes(s, fmt::format("budget {}, {}", budget, what));
  };
  // Budgets: 40 upsamples three layers; 150 two, one is exact; 230 has several numbers of templates.
  const Mapping two{MappingKind::random, 2};
  check("40", {.gain = Gain::on}, "gain");
  check("150", {.embedding = 5}, "small embedding");
  check("230", {.embedding = 5, .gain = Gain::on}, "gain");
  check("200", {.mapping = two, .templates = 3, .allocation = Allocation::ref_block}, "two groups");
  check("230", {.templates = 3, .gain = Gain::on, .allocation = Allocation::resized}, "resized, gain");
  check("40", {.templates = 4, .allocation = Allocation::resized}, "resized");
  if (upsample == Upsample::mask) {
    check("40", {.window = 4, .masks = MaskScope::layer, .mask_init = MaskInit::random}, "a layer's masks");
    check("40", {.mask_init = MaskInit::ones}, "ones");
  }
  if (upsample == Upsample::inter) {
    check("40", {.inter = Inter::line, .gain = Gain::on}, "1d");
    check("40", {.inter = Inter::ref}, "ref");
  }
  if (combine == Combine::emb || combine == Combine::wavg) {
    check("230", {.embedding = 5, .softmax = true}, "softmax");
    check("230", {.softmax = true, .allocation = Allocation::resized}, "softmax, resized");
  }
}

/// A few convolutions, some of them depthwise or in groups, some with a norm, and two linear layers.
class RandomNetwork {
 public:
  RandomNetwork(Dice& dice, const PlanOptions& options, WeightPolicy policy)
      : weights(parameters, options, policy) {
    std::int64_t channels = channels_;
    for (std::int64_t i = 1 + dice.below(4); i > 0; --i) {
      const std::int64_t kernel = 1 + 2 * dice.below(2), groups = dice.one_of({std::int64_t{1}, channels});
      const std::int64_t out = groups * (1 + dice.below(groups > 1 ? 2 : 6));
      const Scope scope = Scope{weights, parameters}.at(fmt::format("block{}", i));
      blocks_.push_back(
          {Conv2d(scope.at("conv"), channels, out,
                  {.kernel = kernel, .padding = kernel / 2, .groups = groups}),
           dice.below(2) ? std::optional<BatchNorm>(std::in_place, scope.at("norm"), out) : std::nullopt});
      channels = out;
    }
    const Scope scope{weights, parameters};
    const std::int64_t hidden = 1 + dice.below(9);
    hidden_.emplace(scope.at("hidden"), channels, hidden);
    fc_.emplace(scope.at("fc"), hidden, 5);
    weights.build();
    parameters.build();
  }

  Var loss() const {
    const Random draws(6, "images");
    std::vector<double> x(3 * 4 * 5 * channels_);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = draws.normal(i);
    Var h = Var::constant(Tensor::of<double>({3, 4, 5, channels_}, x).to(DType::f32));
    for (const Block& b : blocks_) {
      h = b.conv(h);
      h = b.norm ? (*b.norm)(h, {.training = true}, Activation::relu) : relu(h);
    }
    const std::int32_t labels[] = {1, 4, 0};
    return cross_entropy((*fc_)(relu((*hidden_)(global_avg_pool(h)))), Tensor::of<std::int32_t>({3}, labels),
                         0, 1.0 / 3);
  }

  Parameters parameters;
  SharedWeights weights;

 private:
  struct Block {
    Conv2d conv;
    std::optional<BatchNorm> norm;
  };
  static constexpr std::int64_t channels_ = 3;
  std::vector<Block> blocks_;
  std::optional<Linear> hidden_, fc_;
};

TEST(SharedTrainingTest, AStepOfAnyNetworkAtAnyBudgetIsFinite) {
  const OneThread one_thread;
  int trained = 0;
  for (std::uint64_t trial = 0; trial < 120; ++trial) {
    Dice dice(trial);
    PlanOptions o = test::random_options(dice, 3);  // the smallest network has three layers
    o.budget = Budget::parse(std::to_string(3 + dice.below(std::int64_t{1} << (2 + dice.below(10)))));
    std::optional<RandomNetwork> f;
    try {
      f.emplace(dice, o, dice.one_of({WeightPolicy::lean, WeightPolicy::eager}));
    } catch (const UsageError&) {
      continue;  // too small for all that is counted, or for the published rule
    }
    ++trained;
    const auto optimizer = make_optimizer({}, f->parameters);
    double loss = 0;
    for (int step = 0; step < 2; ++step) {
      const Var now = f->loss();
      f->parameters.zero_gradients();
      backward(now);
      f->weights.finish_backward();
      optimizer->step(f->parameters, 0.01);
      f->parameters.values_changed();
      loss += test::values_of(now.value())[0];
    }
    ASSERT_TRUE(std::isfinite(loss)) << trial << "\n" << text(f->weights.plan());
    for (const Tensor& t : {f->parameters.values(), f->parameters.gradients()})
      for (const double x : test::values_of(t))
        ASSERT_TRUE(std::isfinite(x)) << trial << "\n" << text(f->weights.plan());
  }
  EXPECT_GT(trained, 80);
}

}  // namespace
}  // namespace ssn
