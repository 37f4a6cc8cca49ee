// Activations in bf16: rounding, every operation beside f32, and training.
#include "runtime/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/optimizer.h"
#include "layers/models/zoo.h"
#include "tests/bf16_cases.h"
#include "tests/close.h"
#include "tests/small_network.h"
#include "tools/training/trainer.h"

namespace ssn::test {
namespace {

TEST(Bf16, EveryValueComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    bf16 x;
    x.bits = static_cast<std::uint16_t>(bits);
    const float value = x;
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(static_cast<float>(bf16(value))));
    else
      EXPECT_EQ(bf16(value).bits, bits);
  }
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  const auto rounded = [](float x) { return static_cast<float>(bf16(x)); };
  constexpr float kStep = 1.0f / 128;  // between neighbours from 1 on
  EXPECT_EQ(rounded(1 + 0.49f * kStep), 1);
  EXPECT_EQ(rounded(1 + 0.51f * kStep), 1 + kStep);
  EXPECT_EQ(rounded(1 + 0.5f * kStep), 1);
  EXPECT_EQ(rounded(1 + 1.5f * kStep), 1 + 2 * kStep);
  EXPECT_EQ(rounded(-1 - 1.5f * kStep), -1 - 2 * kStep);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Bf16, OperationsAgreeWithF32) {
  const bool library = takes_bf16(Device::cpu);
  for (const HalfCase& c : half_cases())
    if (library || !c.library)
      expect_close_as_bf16(c, run_half(c, DType::bf16, Device::cpu), run_half(c, DType::f32, Device::cpu));
}

TEST(Bf16, ParametersStayF32) {
  const Var rows = Var::constant(Tensor::zeros({2, 4}, DType::bf16));
  const Var w = Var::constant(Tensor::zeros({3, 4}, DType::bf16)),
            b = Var::constant(Tensor::zeros({3}, DType::bf16));
  EXPECT_THROW(linear(rows, w, b), Error);
  EXPECT_THROW(linear(cast(rows, DType::f32), w), Error);
  EXPECT_THROW(layer_norm(rows, b, b, 1e-5), Error);
}

/// Output, and gradients of x and of the weight in theta's order, of a linear layer or a convolution in bf16
/// whose weight comes in a format.
std::vector<std::vector<double>> with_weight(Device device, const Shape& x_shape, const Shape& w_shape,
                                             const WeightFormat& format) {
  const auto noise = [](const Shape& shape, std::uint64_t stream) {
    const Tensor t = Tensor::empty(shape, DType::f32);
    std::uint64_t draw = 0;
    for (float& v : t.span<float>()) v = static_cast<float>(Random(5, stream).normal(draw++));
    return t;
  };
  const Var x = Var::leaf(noise(x_shape, 0).to(DType::bf16).to(device));
  const Var w = Var::leaf(reformatted(noise(w_shape, 1), w_shape, {}, format).to(device));
  const Var y = w_shape.rank() == 2
                    ? linear(x, w)
                    : conv2d(x, w, {.padding = {1, 1}, .channels_last = format.channels_last});
  const Tensor gy = noise(y.shape(), 2).to(DType::bf16).to(device);
  backward({&y, 1}, {&gy, 1});
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  const Tensor gw = reformatted(w.grad(), w_shape, {.channels_last = format.channels_last}, {});
  return {values_of(y.value()), values_of(x.grad()), values_of(gw)};
}

TEST(Bf16, WeightsMayComeRoundedAndInEitherOrder) {
  bool any = false;
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (!available(device) || !takes_bf16(device)) continue;
    any = true;
    for (const auto& [x, w] : {std::pair<Shape, Shape>{{5, 24}, {16, 24}},
                               {{2, 5, 6, 8}, {16, 8, 3, 3}},
                               {{2, 5, 6, 3}, {7, 3, 2, 3}},
                               {{2, 5, 6, 8}, {16, 8, 1, 1}}}) {
      const auto want = with_weight(device, x, w, {});
      for (const WeightFormat& format : {WeightFormat{true, false}, {true, true}, {false, true}})
        EXPECT_EQ(with_weight(device, x, w, format), want) << w.text();
    }
  }
  if (!any) GTEST_SKIP() << "neither this processor nor a device has bf16";
}

struct Trained {
  Metrics test;
  std::vector<double> values;
};
Trained trained(const Dataset& dataset, TrainConfig config, const std::string& precision,
                const std::string& recompute) {
  config.precision = precision, config.recompute = recompute;
  Model model(config, dataset.facts.input, Device::cpu);
  SoloComm solo;
  model.build(solo);
  const Recompute again = choose_recompute(config, {.input = dataset.facts.input});
  const TrainResult result =
      Trainer(solo, model, {.config = config, .dataset = dataset, .train = dataset.train, .recompute = again})
          .run();
  return {*result.test, values_of(model.parameters.values())};
}

/// The same bits again, whether activations are kept or computed again.
void expect_repeatable(const Dataset& dataset, const TrainConfig& config, const Trained& half) {
  EXPECT_EQ(trained(dataset, config, "bf16", "none").values, half.values);
  EXPECT_EQ(trained(dataset, config, "bf16", "all").values, half.values);
}

TEST(Bf16, TrainsAsWellAndRepeatably) {
  if (!takes_bf16(Device::cpu)) GTEST_SKIP() << "this processor has no bf16";
  const OneThread one_thread;
  const Dataset dataset = load_dataset("synthetic:3x8x8x4x160");
  TrainConfig config;
  config.model = "wrn-10-1", config.budget = "20%", config.epochs = 4, config.batch = 20;
  const Trained exact = trained(dataset, config, "f32", "none"),
                half = trained(dataset, config, "bf16", "none");
  EXPECT_LE(exact.test.error1(), 10);
  EXPECT_LE(half.test.error1(), 10) << "percent";
  EXPECT_NE(half.values, exact.values);
  expect_repeatable(dataset, config, half);
}

TEST(Bf16, TrainsTransformersAsWellAndRepeatably) {
  if (!takes_bf16(Device::cpu)) GTEST_SKIP() << "this processor has no bf16";
  const OneThread one_thread;
  const Dataset dataset = load_dataset("synthetic-text:100", {.text = {.length = 16}});
  TrainConfig config;
  config.length = 16, config.budget = "30%", config.optimizer = "adamw", config.lr = 0.002;
  config.epochs = 3, config.batch = 16;
  for (const char* model : {"bert-1-64", "albert-1-64"}) {
    config.model = model;
    const Trained exact = trained(dataset, config, "f32", "none"),
                  half = trained(dataset, config, "bf16", "none");
    EXPECT_NEAR(half.test.loss(), exact.test.loss(), 0.01 * exact.test.loss()) << model;
    EXPECT_NE(half.values, exact.values) << model;
    expect_repeatable(dataset, config, half);
  }
}

TEST(Bf16, TheLossOfAnEfficientNetFollowsThatInF32) {
  if (!takes_bf16(Device::cpu)) GTEST_SKIP() << "this processor has no bf16";
  const OneThread one_thread;
  const auto losses = [](bool half) {
    Parameters parameters;
    SharedWeights weights(parameters, {.budget = Budget::parse("dense")}, WeightPolicy::eager);
    const auto network =
        make_network("efficientnet-b0", {.channels = 3, .height = 64, .width = 64, .classes = 4},
                     {weights, parameters}, {.width = 0.25, .removed = 3});
    weights.build();
    parameters.build();
    const auto optimizer = make_optimizer({}, parameters);
    const Tensor images = Tensor::empty({8, 64, 64, 3}, DType::f32);
    std::uint64_t draw = 0;
    for (float& v : images.span<float>()) v = static_cast<float>(Random(3, "images").normal(draw++));
    const std::int32_t labels[] = {0, 1, 2, 3, 2, 0, 1, 3};
    std::vector<double> found;
    for (int step = 0; step < 12; ++step) {
      parameters.zero_gradients();
      const Var loss =
          cross_entropy(network->forward({.images = images}, {.training = true, .step = step, .half = half}),
                        Tensor::of<std::int32_t>({8}, labels), 0, 0.125);
      backward(loss);
      weights.finish_backward();
      optimizer->step(parameters, 0.05);
      found.push_back(values_of(loss.value())[0]);
    }
    return found;
  };
  const std::vector<double> exact = losses(false), half = losses(true);
  EXPECT_LE(exact.back(), exact.front() / 2);
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(half[i], exact[i], 0.05) << "step " << i;
  EXPECT_NE(half, exact);
  EXPECT_EQ(losses(true), half);
}

}  // namespace
}  // namespace ssn::test
