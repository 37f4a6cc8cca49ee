#include "autograd/ops.h"
#include "autograd/optimizer.h"
#include "tests/data_files.h"

// Wrong arguments of operations: one error that names the operation and what was found.
namespace ssn {
namespace {

using test::expect_error;

Var zeros(const Shape& shape, DType dtype = DType::f32) {
  return Var::leaf(Tensor::zeros(shape, dtype));
}
Tensor labels(std::vector<std::int32_t> values) {
  return Tensor::of<std::int32_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

TEST(OpArguments, math) {
  expect_error([] { add(zeros({2, 3}), zeros({3, 2})); }, {"[add]", "2x3", "3x2"});
  expect_error([] { add(zeros({2}), zeros({2}, DType::f64)); }, {"[add]", "f32", "f64"});
  expect_error([] { relu(zeros({2}, DType::i32)); }, {"[relu]", "i32"});
  expect_error([] { bias_add(zeros({2, 3}), zeros({2})); }, {"[bias_add]", "2x3", "found 2"});
  expect_error([] { bias_add(zeros({2, 3}), zeros({3}, DType::f64)); }, {"[bias_add]", "f64"});
  expect_error([] { reshape(zeros({2, 3}), {5}); }, {"[reshape]", "6", "5"});
}

TEST(OpArguments, sequences) {
  expect_error([] { bias_gelu(zeros({2, 3}), zeros({2})); }, {"[bias_gelu]", "2x3", "found 2"});
  expect_error([] { gelu(zeros({2}, DType::i32)); }, {"[gelu]", "i32"});
  expect_error([] { linear(zeros({2, 3}), zeros({4, 3}), zeros({3})); }, {"[linear]", "4x3", "the bias 3"});
  expect_error([] { layer_norm(zeros({}), zeros({}), zeros({}), 0); }, {"[layer_norm]", "scalar"});
  expect_error([] { layer_norm(zeros({2, 3}), zeros({2}), zeros({3}), 0); }, {"gain", "2x3", "found 2"});
  expect_error(
      [] {
        add_layer_norm(zeros({2, 3}), zeros({3, 2}), zeros({3}), zeros({3}), 0);
      },
      {"2x3", "3x2"});
  expect_error([] { embedding(zeros({3}), labels({0})); }, {"[embedding]", "found 3"});
  expect_error([] { embedding(zeros({3, 2}), labels({0, 2, 3})); }, {"id 2 is 3", "0 to 2"});
  expect_error([] { embedding(zeros({3, 2}), labels({0, -1})); }, {"id 1 is -1"});
  const auto attend = [](const Shape& q, const Shape& k, std::vector<std::int32_t> lengths,
                         const AttentionOptions& options) {
    attention(zeros(q), zeros(k), zeros(k), labels(std::move(lengths)), options);
  };
  attend({6, 4}, {4, 4}, {2, 1}, {.heads = 2});
  expect_error([&] { attend({5, 4}, {4, 4}, {2, 1}, {}); }, {"[attention]", "5x4", "2 samples"});
  expect_error([&] { attend({4, 4}, {4, 6}, {2, 1}, {}); }, {"4x4", "4x6"});
  expect_error([&] { attend({4, 4}, {4, 4}, {}, {}); }, {"0 samples"});
  expect_error([&] { attend({4, 4}, {4, 4}, {2, 1}, {.heads = 3}); }, {"4 columns", "3 heads"});
  expect_error([&] { attend({4, 4}, {4, 4}, {2, 3}, {}); }, {"length 1 is 3", "1 to 2"});
  expect_error([&] { attend({4, 4}, {4, 4}, {0, 2}, {}); }, {"length 0 is 0"});
  expect_error([&] { attend({4, 4}, {4, 4}, {2, 2}, {.dropout = 1}); }, {"dropout", "found 1"});
}

TEST(OpArguments, batch_norm) {
  const auto norm = [](const Shape& x, const Shape& gain, const Shape& bias, const Shape& mean,
                       const Shape& var) {
    const auto running = [](const Shape& s) { return Tensor::zeros(s, DType::f32); };
    batch_norm(zeros(x), zeros(gain), zeros(bias), running(mean), running(var), {});
  };
  norm({4, 3}, {3}, {3}, {3}, {3});
  expect_error([&] { norm({3}, {3}, {3}, {3}, {3}); }, {"[batch_norm]", "found 3"});
  expect_error([&] { norm({4, 3}, {4}, {3}, {3}, {3}); }, {"gain", "4x3", "found 4"});
  expect_error([&] { norm({4, 3}, {3}, {4}, {3}, {3}); }, {"bias", "found 4"});
  expect_error([&] { norm({4, 3}, {3}, {3}, {3, 1}, {3}); }, {"running_mean", "found 3x1"});
  expect_error([&] { norm({4, 3}, {3}, {3}, {3}, {2}); }, {"running_var", "found 2"});
  const auto several = [](const std::vector<Var>& xs) {
    const Tensor running = Tensor::zeros({5}, DType::f32);
    batch_norm(xs, zeros({5}), zeros({5}), running, running, {});
  };
  several({zeros({4, 3}), zeros({4, 2})});
  expect_error([&] { several({}); }, {"[batch_norm]", "no input"});
  expect_error([&] { several({zeros({4, 3}), zeros({2, 2})}); }, {"4x3", "2x2"});
  expect_error([&] { several({zeros({4, 3}), zeros({1, 4, 2})}); }, {"4x3", "1x4x2"});
  expect_error([&] { several({zeros({4, 3}), zeros({4, 3})}); }, {"gain", "4x6", "found 5"});
  expect_error([&] { several({zeros({4, 3}), zeros({4, 2}, DType::f64)}); }, {"f32", "f64"});
}

TEST(OpArguments, dropout_and_scale) {
  const auto drop = [](double rate, std::int64_t first, std::int64_t unit) {
    dropout(zeros({4, 3}), {.rate = rate, .random = Random(1, "drop"), .first = first, .unit = unit});
  };
  drop(0.5, 0, 1);
  expect_error([&] { drop(1, 0, 1); }, {"[dropout]", "found 1"});
  expect_error([&] { drop(std::nan(""), 0, 1); }, {"[dropout]", "found nan"});
  expect_error([&] { drop(-0.1, 0, 1); }, {"found -0.1"});
  expect_error([&] { drop(0.5, 0, 0); }, {"found 0 and 0"});
  expect_error([&] { drop(0.5, -1, 1); }, {"found 1 and -1"});
  expect_error(
      [] {
        scale_channels(zeros({2, 3, 5, 4}), zeros({2, 3}));
      },
      {"[scale_channels]", "found 2x3x5x4 and 2x3"});
  expect_error([] { scale_channels(zeros({2, 4}), zeros({2, 4})); }, {"[scale_channels]", "found 2x4"});
}

TEST(OpArguments, pools) {
  const Var x = zeros({2, 5, 6, 3});
  expect_error([] { max_pool(zeros({2, 3}), {}); }, {"[max_pool]", "2x3"});
  expect_error([&] { max_pool(x, {.kernel = {0, 2}}); }, {"kernel", "found 0"});
  expect_error([&] { avg_pool(x, {.stride = {2, 0}}); }, {"[avg_pool]", "stride", "and 0"});
  expect_error([&] { avg_pool(x, {.padding = {2, 0}}); }, {"padding", "found 2"});
  expect_error([&] { avg_pool(x, {.kernel = {2, 7}}); }, {"window of 7", "5x6"});
  expect_error(
      [&] {
        max_pool(x, {.kernel = {std::int64_t{1} << 40, 2}, .padding = {std::int64_t{1} << 39, 0}});
      },
      {"kernel"});
  expect_error([] { global_avg_pool(zeros({2, 0, 3, 4})); }, {"[global_avg_pool]", "2x0x3x4"});
}

TEST(OpArguments, cross_entropy) {
  const Var x = zeros({3, 4});
  expect_error([&] { cross_entropy(zeros({3}), labels({0, 1, 2}), 0, 1); }, {"[cross_entropy]", "found 3"});
  expect_error([&] { cross_entropy(zeros({3, 0}), labels({0, 1, 2}), 0, 1); }, {"at least one class", "3x0"});
  expect_error([&] { cross_entropy(x, labels({0, 1}), 0, 1); }, {"labels", "shape 3", "shape 2"});
  expect_error([&] { cross_entropy(x, Tensor::zeros({3}, DType::i64), 0, 1); }, {"i32", "i64"});
  expect_error([&] { cross_entropy(x, labels({0, 4, 1}), 0, 1); }, {"row 1", "4", "4 classes"});
  expect_error([&] { cross_entropy(x, labels({0, 1, 2}), 1, 1); }, {"smoothing", "found 1"});
  expect_error([&] { cross_entropy(x, labels({0, 1, 2}), -0.1, 1); }, {"smoothing", "-0.1"});
}

TEST(OpArguments, optimizer) {
  Parameters parameters, other;
  parameters.add("a", {3}, Section::ordinary, true, [](std::int64_t) { return 0.0; });
  other.add("a", {40}, Section::ordinary, true, [](std::int64_t) { return 0.0; });
  expect_error([&] { make_optimizer({}, parameters); }, {"[optimizer]", "build()"});
  parameters.build();
  other.build();
  const auto refused = [&](const OptimizerOptions& options, const std::vector<std::string>& words) {
    expect_error([&] { make_optimizer(options, parameters); }, words);
  };
  refused({.momentum = 1}, {"momentum of sgd", "found 1"});
  refused({.decay = -1}, {"decay", "found -1"});
  refused({.kind = OptimizerKind::adam, .beta1 = -0.1}, {"beta1 of adam", "found -0.1"});
  refused({.kind = OptimizerKind::lamb, .beta2 = 1}, {"beta2 of lamb", "found 1"});
  refused({.kind = OptimizerKind::rmsprop, .epsilon = 0}, {"epsilon of rmsprop", "found 0"});
  for (const std::string& name : names_of<OptimizerKind>()) {
    const auto optimizer = make_optimizer(usual_options(value_named<OptimizerKind>(name)), parameters);
    EXPECT_EQ(name_of(optimizer->options().kind), name);
    const auto version = parameters.version();
    optimizer->step(parameters, 0.1);
    EXPECT_EQ(optimizer->steps(), 1);
    EXPECT_GT(parameters.version(), version);
    expect_error([&] { optimizer->step(other, 0.1); }, {"3", "40"});
  }
}

}  // namespace
}  // namespace ssn
