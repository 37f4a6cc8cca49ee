#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "kernels/conv.h"
#include "runtime/dispatch.h"
#include "tests/close.h"

// The operations that serve bf16, which bf16_test.cpp holds against f32, and op_test.cpp on CUDA against the
// CPU.
namespace ssn::test {

/// An operation on activations, the last of whose inputs are parameters.
struct HalfCase {
  std::string name;
  std::vector<Shape> inputs;
  std::size_t parameters;
  std::function<Var(std::span<const Var>)> f;
  bool library = false;  // computed by a library: which needs takes_bf16
  double bound = 0.01;   // of the largest element; bf16 keeps 8 bits
};

/// Whether the libraries do, on a device that is available.
inline bool takes_bf16(Device device) {
  return on_queue(device, "bf16", [](auto& q) { return kernels::conv_takes_bf16(q); });
}

/// Output and gradients with activations of a type, as f64; everything starts from the same numbers, which
/// bf16 holds.
inline std::vector<Tensor> run_half(const HalfCase& c, DType type, Device device) {
  std::vector<Var> in;
  const auto rounded = [](const Shape& shape, const Random& draws) {
    std::vector<float> values(static_cast<std::size_t>(shape.size()));
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = bf16(static_cast<float>(draws.normal(k)));
    return Tensor::of<float>(shape, values);
  };
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const bool parameter = i + c.parameters >= c.inputs.size();
    const Tensor values = rounded(c.inputs[i], Random(11, i));
    in.push_back(Var::leaf(values.to(parameter ? DType::f32 : type).to(device)));
  }
  const Var y = c.f(in);
  const Tensor cotangent = rounded(y.shape(), Random(12, "cotangent")).to(y.dtype()).to(device);
  std::vector<Tensor> found{y.value().to(Device::cpu).to(DType::f64)};
  backward({&y, 1}, {&cotangent, 1});
  for (const Var& x : in) {
    EXPECT_EQ(x.grad().dtype(), x.dtype()) << c.name;
    found.push_back(x.grad().to(Device::cpu).to(DType::f64));
  }
  return found;
}

inline void expect_close_as_bf16(const HalfCase& c, const std::vector<Tensor>& got,
                                 const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(close(values_of(got[i]), values_of(want[i]), c.bound, scale_of(values_of(want[i]), 1e-6)))
        << c.name << ", output or gradient " << i;
}

inline Tensor integers(const std::vector<std::int32_t>& values, const Var& like) {
  return Tensor::of<std::int32_t>({std::ssize(values)}, values).to(like.device());
}

inline Var norm_of(std::span<const Var> in, const BatchNormOptions& o) {
  const Shape c = in[1].shape();
  const auto filled = [&](double value) { return Tensor::full(c, value, DType::f32, in[0].device()); };
  return batch_norm(in[0], in[1], in[2], filled(0.3), filled(1.5), o);
}

/// Of images (n, h, w, c) and of rows (r, d); the names end in `suffix`.
inline std::vector<HalfCase> pointwise_half_cases(const Shape& image, const Shape& rows,
                                                  const std::string& suffix) {
  using In = std::span<const Var>;
  const Shape c{image[3]}, d{rows[1]};
  const std::int64_t sample = image.size() / image[0];
  std::vector<HalfCase> cases = {
      {"add", {image, image}, 0, [](In in) { return add(in[0], in[1]); }},
      {"add_twice", {image}, 0, [](In in) { return add(relu(in[0]), relu(in[0])); }},
      {"add_relu", {image, image}, 0, [](In in) { return add_relu(in[0], in[1]); }},
      {"relu", {image}, 0, [](In in) { return relu(in[0]); }},
      {"pad_channels", {image}, 0, [n = image[3]](In in) { return pad_channels(in[0], n / 2, 2 * n); }},
      {"dropout", {image}, 0, [](In in) { return dropout(in[0], {.rate = 0.3, .random = Random(5, 6)}); }},
      {"dropout_of_samples",
       {image},
       0,
       [=](In in) { return dropout(in[0], {.rate = 0.5, .random = Random(5, 6), .unit = sample}); }},
      {"tanh", {image}, 0, [](In in) { return tanh(in[0]); }},
      {"cast", {image}, 0, [](In in) { return cast(in[0], DType::f32); }},
      {"gelu", {image}, 0, [](In in) { return gelu(in[0]); }},
      {"bias_gelu", {rows, d}, 1, [](In in) { return bias_gelu(in[0], in[1]); }},
      {"bias_add", {rows, d}, 1, [](In in) { return bias_add(in[0], in[1]); }},
      {"layer_norm", {rows, d, d}, 2, [](In in) { return layer_norm(in[0], in[1], in[2], 1e-5); }},
      {"add_layer_norm",
       {rows, rows, d, d},
       2,
       [](In in) { return add_layer_norm(in[0], in[1], in[2], in[3], 1e-5); }},
      {"rows_of_activations",
       {rows},
       0,
       [](In in) {
         return embedding(in[0], integers({3, 0, 36, 3, 7}, in[0]));
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
      {"scale_channels",
       {image, Shape{image[0], image[3]}},
       1,
       [](In in) { return scale_channels(in[0], in[1]); }},
      {"batch_norm", {image, c, c}, 2, [](In in) { return norm_of(in, {}); }},
      {"batch_norm_relu",
       {image, c, c},
       2,
       [](In in) { return norm_of(in, {.training = false, .activation = Activation::relu}); }},
      {"batch_norm_silu",
       {image, c, c},
       2,
       [](In in) { return norm_of(in, {.activation = Activation::silu}); }},
  };
  for (HalfCase& one : cases) one.name += suffix;
  return cases;
}

/// Those that libraries compute, or that have a file of their own.
inline std::vector<HalfCase> product_half_cases() {
  using In = std::span<const Var>;
  const Shape image{3, 6, 5, 16}, rows{37, 24}, weight{50, 24}, bias{50};
  return {
      {"linear", {rows, weight}, 1, [](In in) { return linear(in[0], in[1]); }, true},
      {"linear_bias", {rows, weight, bias}, 2, [](In in) { return linear(in[0], in[1], in[2]); }, true},
      {"linear_twice",
       {rows, weight, bias},
       2,
       [](In in) { return add(linear(in[0], in[1], in[2]), linear(in[0], in[1])); },
       true},
      {"logits", {rows, weight, bias}, 2, [](In in) { return logits(in[0], in[1], in[2]); }, true},
      {"attention",
       {Shape{3 * 131, 24}, Shape{3 * 9, 24}, Shape{3 * 9, 24}},
       0,
       [](In in) {
         return attention(in[0], in[1], in[2], integers({9, 1, 6}, in[0]),
                          {.heads = 3, .dropout = 0.2, .random = Random(5, 7)});
       },
       true,
       0.02},  // of the sample with one key, whose 131 queries' gradients cancel but for y's rounding
      {"conv",
       {image, Shape{24, 16, 3, 3}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.padding = {1, 1}});
       },
       true},
      {"conv_strided",
       {image, Shape{8, 16, 1, 1}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.stride = {2, 2}});
       },
       true},
      {"conv_depthwise",
       {Shape{3, 6, 5, 24}, Shape{24, 1, 5, 3}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.stride = {1, 2}, .padding = {2, 1}, .groups = 24});
       },
       true},
      {"conv_7x7",
       {Shape{2, 16, 16, 3}, Shape{8, 3, 7, 7}},
       1,
       [](In in) {
         return conv2d(in[0], in[1], {.stride = {2, 2}, .padding = {3, 3}});
       },
       true},
  };
}

/// Wide rows, whose packs are full, and odd ones.
inline std::vector<HalfCase> half_cases() {
  std::vector<HalfCase> all = pointwise_half_cases({3, 6, 5, 16}, {37, 24}, "");
  for (const auto& more : {pointwise_half_cases({2, 7, 3, 5}, {41, 13}, "_odd"), product_half_cases()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace ssn::test
