// Activations in bf16: rounding, every operation beside f32, and training.
#include "runtime/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/ops.h"
#include "autograd/optimizer.h"
#include "kernels/conv.h"
#include "layers/models/zoo.h"
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

/// An operation on activations, the last of which are parameters.
struct Operation {
  const char* name;
  std::vector<Shape> inputs;
  std::size_t parameters;
  std::function<Var(std::span<const Var>)> f;
};

Var norm(std::span<const Var> in, const BatchNormOptions& o) {
  const Shape c = in[1].shape();
  return batch_norm(in[0], in[1], in[2], Tensor::full(c, 0.3, DType::f32), Tensor::full(c, 1.5, DType::f32),
                    o);
}

Tensor integers(const std::vector<std::int32_t>& values) {
  return Tensor::of<std::int32_t>({std::ssize(values)}, values);
}

std::vector<Operation> operations() {
  using In = std::span<const Var>;
  const Shape image{3, 6, 5, 16}, rows{37, 24};
  return {
      {"add", {image, image}, 0, [](In in) { return add(in[0], in[1]); }},
      {"relu", {image}, 0, [](In in) { return relu(in[0]); }},
      {"pad_channels", {image}, 0, [](In in) { return pad_channels(in[0], 3, 21); }},
      {"dropout", {image}, 0, [](In in) { return dropout(in[0], {.rate = 0.3, .random = Random(5, 6)}); }},
      {"dropout_of_samples",
       {image},
       0,
       [](In in) { return dropout(in[0], {.rate = 0.5, .random = Random(5, 6), .unit = 6 * 5 * 16}); }},
      {"tanh", {image}, 0, [](In in) { return tanh(in[0]); }},
      {"gelu", {image}, 0, [](In in) { return gelu(in[0]); }},
      {"bias_gelu", {rows, Shape{24}}, 1, [](In in) { return bias_gelu(in[0], in[1]); }},
      {"bias_add", {rows, Shape{24}}, 1, [](In in) { return bias_add(in[0], in[1]); }},
      {"linear", {rows, Shape{50, 24}}, 1, [](In in) { return linear(in[0], in[1]); }},
      {"linear_bias", {rows, Shape{50, 24}, Shape{50}}, 2, [](In in) { return linear(in[0], in[1], in[2]); }},
      {"linear_twice",
       {rows, Shape{50, 24}, Shape{50}},
       2,
       [](In in) { return add(linear(in[0], in[1], in[2]), linear(in[0], in[1])); }},
      {"logits", {rows, Shape{50, 24}, Shape{50}}, 2, [](In in) { return logits(in[0], in[1], in[2]); }},
      {"layer_norm",
       {rows, Shape{24}, Shape{24}},
       2,
       [](In in) { return layer_norm(in[0], in[1], in[2], 1e-5); }},
      {"add_layer_norm",
       {rows, rows, Shape{24}, Shape{24}},
       2,
       [](In in) { return add_layer_norm(in[0], in[1], in[2], in[3], 1e-5); }},
      {"rows_of_activations",
       {rows},
       0,
       [](In in) {
         return embedding(in[0], integers({3, 0, 36, 3, 7}));
       }},
      {"attention",
       {Shape{3 * 131, 24}, Shape{3 * 9, 24}, Shape{3 * 9, 24}},
       0,
       [](In in) {
         return attention(in[0], in[1], in[2], integers({9, 1, 6}),
                          {.heads = 3, .dropout = 0.2, .random = Random(5, 7)});
       }},
      {"conv",
       {image, Shape{24, 16, 3, 3}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.padding = {1, 1}});
       }},
      {"conv_strided",
       {image, Shape{8, 16, 1, 1}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.stride = {2, 2}});
       }},
      {"conv_depthwise",
       {Shape{3, 6, 5, 24}, Shape{24, 1, 5, 3}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.stride = {1, 2}, .padding = {2, 1}, .groups = 24});
       }},
      {"conv_7x7",
       {Shape{2, 16, 16, 3}, Shape{8, 3, 7, 7}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.stride = {2, 2}, .padding = {3, 3}});
       }},
      {"max_pool",
       {image},
       0,
       [](In in) {
         return max_pool(in[0], {.kernel = {3, 3}, .padding = {1, 1}});
       }},
      {"avg_pool", {image}, 0, [](In in) { return avg_pool(in[0], {}); }},
      {"means_as_factors", {image}, 0, [](In in) { return scale_channels(in[0], global_avg_pool(in[0])); }},
      {"global_avg_pool", {image}, 0, [](In in) { return global_avg_pool(in[0]); }},
      {"scale_channels", {image, Shape{3, 16}}, 1, [](In in) { return scale_channels(in[0], in[1]); }},
      {"batch_norm", {image, Shape{16}, Shape{16}}, 2, [](In in) { return norm(in, {}); }},
      {"batch_norm_relu",
       {image, Shape{16}, Shape{16}},
       2,
       [](In in) { return norm(in, {.training = false, .activation = Activation::relu}); }},
      {"batch_norm_silu",
       {image, Shape{16}, Shape{16}},
       2,
       [](In in) { return norm(in, {.activation = Activation::silu}); }},
  };
}

/// Output and gradients with activations of a type; everything starts from the same numbers, which bf16
/// holds.
std::vector<std::vector<double>> run(const Operation& op, DType type) {
  std::vector<Var> in;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Random draws(11, i);
    std::vector<float> values(static_cast<std::size_t>(op.inputs[i].size()));
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = bf16(static_cast<float>(draws.normal(k)));
    const bool parameter = i + op.parameters >= op.inputs.size();
    in.push_back(Var::leaf(Tensor::of<float>(op.inputs[i], values).to(parameter ? DType::f32 : type)));
  }
  const Var y = op.f(in);
  const Random draws(12, "cotangent");
  std::vector<float> gy(static_cast<std::size_t>(y.size()));
  for (std::size_t k = 0; k < gy.size(); ++k) gy[k] = bf16(static_cast<float>(draws.normal(k)));
  const Tensor cotangent = Tensor::of<float>(y.shape(), gy).to(y.dtype());
  std::vector<std::vector<double>> found{values_of(y.value().to(DType::f64))};
  backward({&y, 1}, {&cotangent, 1});
  for (const Var& x : in) {
    EXPECT_EQ(x.grad().dtype(), x.dtype()) << op.name;
    found.push_back(values_of(x.grad().to(DType::f64)));
  }
  return found;
}

TEST(Bf16, OperationsAgreeWithF32) {
  if (!kernels::conv_takes_bf16(cpu_queue())) GTEST_SKIP() << "this processor has no bf16";
  for (const Operation& op : operations()) {
    const auto exact = run(op, DType::f32), half = run(op, DType::bf16);
    ASSERT_EQ(exact.size(), half.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      double largest = 0;
      for (const double v : exact[i]) largest = std::max(largest, std::abs(v));
      ASSERT_EQ(exact[i].size(), half[i].size());
      for (std::size_t k = 0; k < exact[i].size(); ++k)
        ASSERT_TRUE(std::abs(exact[i][k] - half[i][k]) <= largest / 100)
            << op.name << ", output or gradient " << i << " at " << k << ": " << half[i][k] << ", in f32 "
            << exact[i][k];
    }
  }
}

TEST(Bf16, ParametersStayF32) {
  const Var x = Var::constant(Tensor::zeros({1, 4, 4, 8}, DType::bf16));
  const Var w = Var::constant(Tensor::zeros({8, 8, 3, 3}, DType::bf16));
  EXPECT_THROW(conv2d(x, w), Error);
  const Var rows = Var::constant(Tensor::zeros({2, 4}, DType::bf16));
  EXPECT_THROW(linear(rows, Var::constant(Tensor::zeros({3, 4}, DType::bf16))), Error);
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
  if (!kernels::conv_takes_bf16(cpu_queue())) GTEST_SKIP() << "this processor has no bf16";
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
  if (!kernels::conv_takes_bf16(cpu_queue())) GTEST_SKIP() << "this processor has no bf16";
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
  if (!kernels::conv_takes_bf16(cpu_queue())) GTEST_SKIP() << "this processor has no bf16";
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
