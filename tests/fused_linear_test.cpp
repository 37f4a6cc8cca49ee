// Linear layers whose weight is generated within the product: where, and that what they give is the same to
// rounding.
#include "autograd/fused_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "autograd/flops.h"
#include "autograd/recompute.h"
#include "layers/linear.h"
#include "runtime/dispatch.h"
#include "runtime/random.h"
#include "runtime/trace.h"
#include "ssn/shared_weights.h"
#include "tests/training_run.h"

namespace ssn::test {
namespace {

using Doubles = std::vector<double>;
constexpr const char* kFused = "generated_linear";

Tensor normal(const Shape& shape, std::uint64_t stream) {
  const Random draws(3, stream);
  const Tensor t = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < t.size(); ++i)
    t.data<float>()[i] = static_cast<float>(draws.normal(static_cast<std::uint64_t>(i)));
  return t;
}

/// Two layers of 2^20 weights each, which share: tiles under masks, or with more parameters sums of
/// templates.
struct Network {
  Parameters parameters;
  SharedWeights weights;
  std::optional<Linear> first, second;

  explicit Network(WeightPolicy policy, const std::string& budget = "30%")
      : weights(parameters, {.budget = Budget::parse(budget), .templates = 3, .seed = 5}, policy) {
    const Scope scope{weights, parameters};
    first.emplace(scope.at("first"), 512, 2048);
    second.emplace(scope.at("second"), 2048, 512);
    weights.build();
    parameters.build();
  }
  Var operator()(const Var& x) const { return (*second)(first->gelu(x)); }
};

/// How many products were fused within f.
std::int64_t fused_in(const std::function<void()>& f) {
  start_trace();
  f();
  const Trace trace = stop_trace();
  return std::ranges::count_if(trace.events,
                               [](const TraceEvent& e) { return std::string_view(e.name) == kFused; });
}

TEST(FusedLinear, IsForFewRowsThatNoGradientFollows) {
  const Network lean(WeightPolicy::lean), eager(WeightPolicy::eager);
  const Var few = Var::constant(normal({5, 512}, 1)), many = Var::constant(normal({100, 512}, 2));
  const auto fused = [&](const Network& network, const Var& x) { return fused_in([&] { network(x); }); };
  EXPECT_EQ(fused(lean, few), 0) << "a gradient is recorded";
  const NoGrad no_grad;
  EXPECT_EQ(fused(lean, few), 2);
  EXPECT_EQ(fused(lean, many), 0);
  EXPECT_EQ(fused(eager, few), 0) << "the weights are there";
}

TEST(FusedLinear, IsNotForWhatIsRecomputed) {
  Network lean(WeightPolicy::lean), eager(WeightPolicy::eager);
  const Tensor x = normal({5, 512}, 1);
  const auto train = [&](Network& network) {
    const Var y = recomputed({Var::constant(x)}, [&](std::span<const Var> in) { return network(in[0]); });
    const Tensor gy = normal({5, 512}, 2);
    backward({&y, 1}, {&gy, 1});
    network.weights.finish_backward();
  };
  EXPECT_EQ(fused_in([&] { train(lean); }), 0);
  train(eager);
  EXPECT_TRUE(same_bits(lean.parameters.gradients(), eager.parameters.gradients()));
}

TEST(FusedLinear, GivesTheSameToRoundingAndCountsTheSame) {
  for (const auto& [budget, method] :
       {std::pair{"30%", Method::upsample}, std::pair{"2.2M", Method::templates}}) {
    const Network lean(WeightPolicy::lean, budget), eager(WeightPolicy::eager, budget);
    ASSERT_EQ(lean.weights.plan().layers[0].method, method);
    const NoGrad no_grad;
    const Var x = Var::constant(normal({24, 512}, 1));
    FlopCounter of_lean;
    Var y;
    EXPECT_EQ(fused_in([&] { y = lean(x); }), 2);
    const double flops = of_lean.flops();
    FlopCounter of_eager;
    const Doubles got = values_of(y.value()), want = values_of(eager(x).value());
    EXPECT_TRUE(close(got, want, 1e-5, scale_of(want, 1e-6))) << budget;
    EXPECT_EQ(flops, of_eager.flops());
    EXPECT_EQ(flops, 2.0 * 2 * 24 * 512 * 2048);
  }
}

TEST(FusedLinear, IsForWeightsThatAreMadeNotRead) {
  const Shape shape{1024, 1024};
  const auto fuses = [](const WeightRule& rule) { return fuses_linear(rule, 8, DType::f32, Device::cpu); };
  using M = WeightRule::Method;
  EXPECT_TRUE(fuses({.method = M::templates, .shape = shape, .offsets = {0, 5}}));
  EXPECT_TRUE(fuses({.method = M::tiles, .shape = shape}));
  EXPECT_TRUE(fuses({.method = M::exact, .shape = shape, .offsets = {0}, .gain = 2}));
  EXPECT_FALSE(fuses({.method = M::exact, .shape = shape, .offsets = {0}}));
  EXPECT_FALSE(fuses({.method = M::templates, .shape = shape, .offsets = std::vector<std::int64_t>(65)}));
  EXPECT_FALSE(fuses({.method = M::exact,
                      .shape = shape,
                      .offsets = {0},
                      .gain = 2,
                      .resize = WeightRule::Resize{512, 512, 1024, 1024}}));
  EXPECT_FALSE(fuses({.method = M::tiles, .shape = {100, 100}})) << "caches hold it";
}

TEST(FusedLinear, SaysWhatItCannotDo) {
  const Var theta = Var::constant(normal({64}, 1)), x = Var::constant(normal({2, 5}, 2));
  const auto said = [&](const WeightRule& rule, const Var& bias = {}) {
    const NoGrad no_grad;
    try {
      generated_linear(x, {rule, theta}, bias);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  using M = WeightRule::Method;
  const WeightRule good{.method = M::tiles, .shape = {3, 5}};
  EXPECT_EQ(said(good), "nothing was refused");
  EXPECT_TRUE(has(said({.method = M::tiles, .shape = {3, 4}}), "the input is 2x5, the weight 3x4"));
  EXPECT_TRUE(has(said(good, Var::constant(normal({4}, 3))), "the weight is 3x5, the bias 4"));
  EXPECT_TRUE(has(
      said({.method = M::exact, .shape = {3, 5}, .offsets = {0}, .resize = WeightRule::Resize{2, 5, 3, 5}}),
      "not resized; found 1 templates, resized"));
  EXPECT_TRUE(has(said({.method = M::templates, .shape = {3, 5}, .offsets = std::vector<std::int64_t>(65)}),
                  "at most 64 templates"));
  try {
    generated_linear(x, {good, theta}, {});
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "it has no gradient"));
  }
}

/// Weights are rounded before the product, as where they are in memory: these sums of two are not what sums
/// of weights that are not rounded would be.
TEST(FusedLinear, RoundsTheWeightToTheActivationsType) {
  constexpr std::int64_t kOut = 333;
  const Tensor theta = normal({2 * kOut + 3}, 1);
  const WeightRule rule{.method = WeightRule::Method::exact, .shape = {kOut, 2}, .offsets = {3}, .gain = 0.3};
  int unlike = 0;
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (!available(device)) continue;
    const NoGrad no_grad;
    const Var x = Var::constant(Tensor::full({1, 2}, 1, DType::bf16, device));
    const Doubles y = values_of(generated_linear(x, {rule, Var::constant(theta.to(device))}, {}).value());
    for (std::int64_t o = 0; o < kOut; ++o) {
      const float a = 0.3F * theta.data<float>()[3 + 2 * o], b = 0.3F * theta.data<float>()[4 + 2 * o];
      const float rounded = bf16(static_cast<float>(bf16(a)) + static_cast<float>(bf16(b)));
      EXPECT_EQ(y.at(static_cast<std::size_t>(o)), rounded) << name_of(device) << ' ' << o;
      unlike += rounded != static_cast<float>(bf16(a + b));
    }
  }
  EXPECT_GT(unlike, 10);
}

/// What a run with --weights lean measured at its end, which was fused, is what ssn eval, which keeps the
/// weights, measures of its checkpoint.
TEST(FusedLinear, AnEvaluationGivesTheSameMetrics) {
  const TemporaryDirectory dir("fused");
  const Arguments arguments = {"--quiet",
                               "--threads",
                               "1",
                               "--model",
                               "bert-1-512",
                               "--data",
                               "synthetic-text:12",
                               "--batch",
                               "2",
                               "--length",
                               "8",
                               "--epochs",
                               "1",
                               "--seed",
                               "5",
                               "--budget",
                               "15%",
                               "--weights",
                               "lean",
                               "--out",
                               dir / "run",
                               "--json",
                               "--trace",
                               dir / "trace.json"};
  const auto trained = nlohmann::json::parse(output_of(train, arguments));
  EXPECT_TRUE(has(file_text(dir / "trace.json"), kFused));
  const auto measured = nlohmann::json::parse(
      output_of(eval, {dir / "run/checkpoint.h5", "--quiet", "--json", "--batch", "2"}));
  const double loss = trained["test_loss"];
  EXPECT_NEAR(measured["test_loss"], loss, 1e-4 * loss);
  EXPECT_EQ(measured["test_error1"], trained["test_error1"]);
}

}  // namespace
}  // namespace ssn::test
