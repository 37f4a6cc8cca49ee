#include "kernels/optimizer.h"
#include "runtime/dispatch.h"
#include "tests/golden_case.h"

// Adapters for the operations that every network uses. The cases have images as (n, c, h, w), the project as
// (n, h, w, c).
namespace ssn::test {

Var image_leaf(const GoldenCase& c, const std::string& name, DType dtype, Device device) {
  const Tensor& t = c.inputs.at(name);
  return Var::leaf((t.shape().rank() == 4 ? channels_last(t) : t).to(dtype).to(device));
}

Cotangents images_last(const Cotangents& gout) {
  Cotangents out = gout;
  for (auto& [name, t] : out)
    if (t.shape().rank() == 4) t = channels_last(t);
  return out;
}

GoldenResult images_first(GoldenResult result, std::initializer_list<const char*> names) {
  for (auto* tensors : {&result.outputs, &result.grads})
    for (const char* name : names)
      if (tensors->contains(name) && tensors->at(name).shape().rank() == 4)
        tensors->at(name) = channels_first(tensors->at(name));
  return result;
}

namespace {

void pair(const GoldenCase& c, const std::string& name, std::int64_t (&to)[2]) {
  const auto values = c.integers(name);
  to[0] = values.front();
  to[1] = values.back();
}

GoldenResult run_conv2d(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  if (device == Device::cuda) throw Skip{"no CUDA kernel yet"};
  const Var x = image_leaf(c, "x", dtype, device), w = leaf(c, "w", dtype, device);
  ConvOptions o;
  pair(c, "stride", o.stride);
  pair(c, "padding", o.padding);
  pair(c, "dilation", o.dilation);
  o.groups = c.integer("groups");
  std::map<std::string, Var> leaves = {{"x", x}, {"w", w}};
  Var y = conv2d(x, w, o);
  if (c.has("b")) y = bias_add(y, leaves["b"] = leaf(c, "b", dtype, device));
  return images_first(finish({{"y", y}}, leaves, images_last(gout)), {"x", "y"});
}

GoldenResult run_linear(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  if (device == Device::cuda) throw Skip{"no CUDA kernel yet"};
  const Var x = leaf(c, "x", dtype, device), w = leaf(c, "w", dtype, device);
  std::map<std::string, Var> leaves = {{"x", x}, {"w", w}};
  Var y = linear(x, w);
  if (c.has("b")) y = bias_add(y, leaves["b"] = leaf(c, "b", dtype, device));
  return finish({{"y", y}}, leaves, gout);
}

GoldenResult run_relu(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  const Var x = leaf(c, "x", dtype, device);
  return finish({{"y", relu(x)}}, {{"x", x}}, gout);
}

GoldenResult run_cross_entropy(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  const Var x = leaf(c, "x", dtype, device);
  const Tensor labels = c.inputs.at("y").to(DType::i32);
  const auto ignored = c.attributes.contains("ignore_index") ? c.integer("ignore_index") : -100;
  std::int64_t counted = 0;
  for (std::int32_t& label : labels.span<std::int32_t>()) {
    if (label == ignored) label = -1;
    counted += label >= 0;
  }
  const double scale = c.text("reduction") == "mean" ? 1.0 / static_cast<double>(counted) : 1.0;
  return finish({{"loss", cross_entropy(x, labels.to(device), c.number("label_smoothing"), scale)}},
                {{"x", x}}, gout);
}

GoldenResult run_batchnorm(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  const Var x = image_leaf(c, "x", dtype, device);
  const Tensor mean = c.inputs.at("running_mean").to(dtype).clone().to(device);
  const Tensor var = c.inputs.at("running_var").to(dtype).clone().to(device);
  std::map<std::string, Var> leaves = {{"x", x}};
  const auto parameter = [&](const std::string& name, double without) {
    if (!c.has(name)) return Var::constant(Tensor::full(mean.shape(), without, dtype, device));
    return leaves[name] = leaf(c, name, dtype, device);
  };
  const Var gain = parameter("gamma", 1), bias = parameter("beta", 0);
  const Var y = batch_norm(
      x, gain, bias, mean, var,
      {.eps = c.number("eps"), .momentum = c.number("momentum"), .training = c.integer("training") != 0});
  GoldenResult r = finish({{"y", y}}, leaves, images_last(gout));
  r.outputs["running_mean"] = mean;
  r.outputs["running_var"] = var;
  return images_first(std::move(r), {"x", "y"});
}

PoolOptions pool_options(const GoldenCase& c) {
  PoolOptions o;
  pair(c, "kernel", o.kernel);
  pair(c, "stride", o.stride);
  pair(c, "padding", o.padding);
  if (c.attributes.contains("count_include_pad")) o.count_padding = c.integer("count_include_pad") != 0;
  return o;
}

Adapter pooling(std::function<Var(const Var&, const GoldenCase&)> pool) {
  return [pool](const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
    const Var x = image_leaf(c, "x", dtype, device);
    return images_first(finish({{"y", pool(x, c)}}, {{"x", x}}, images_last(gout)), {"x", "y"});
  };
}

Var adaptive_avg_pool(const Var& x, const GoldenCase& c) {
  if (c.integers("out_size") != std::vector<std::int64_t>{1, 1})
    throw Skip{"adaptive pooling to more than one pixel"};
  return reshape(global_avg_pool(x), {x.shape()[0], 1, 1, x.shape()[3]});
}

Var resized(const Var& x, const GoldenCase& c) {
  if (c.integer("align_corners") != 0) throw Skip{"corners aligned"};
  const auto size = c.integers("out_size");
  return resize_bilinear(x, size.at(0), size.at(1));
}

GoldenResult run_sgd(const GoldenCase& c, const Cotangents&, DType dtype, Device device) {
  Tensor theta = c.inputs.at("p0").to(dtype).clone().to(device);
  const Tensor velocity = Tensor::zeros(theta.shape(), dtype, device);
  const Tensor grads = c.inputs.at("grads").to(dtype).to(device);
  const std::int64_t n = theta.size(), steps = grads.shape()[0];
  const Tensor history = Tensor::empty({steps, n}, dtype, device);
  for (std::int64_t t = 0; t < steps; ++t) {
    const kernels::SgdStep step{c.inputs.at("lr").span<double>()[static_cast<std::size_t>(t)],
                                c.number("momentum"), c.number("weight_decay"), c.integer("nesterov") != 0};
    dispatch(device, dtype, "sgd", [&]<class T>(auto& q) {
      kernels::sgd<T>(q, n, step, grads.slice(t * n, {n}).data<T>(), velocity.data<T>(), theta.data<T>());
    });
    history.slice(t * n, {n}).copy_from(theta);
  }
  return {{{"p", history}}, {}};
}

}  // namespace

std::map<std::string, Adapter> golden_op_adapters() {
  return {
      {"conv2d", run_conv2d},
      {"linear", run_linear},
      {"relu", run_relu},
      {"cross_entropy", run_cross_entropy},
      {"batchnorm", run_batchnorm},
      {"maxpool2d", pooling([](const Var& x, const GoldenCase& c) { return max_pool(x, pool_options(c)); })},
      {"avgpool2d", pooling([](const Var& x, const GoldenCase& c) { return avg_pool(x, pool_options(c)); })},
      {"adaptive_avgpool2d", pooling(adaptive_avg_pool)},
      {"resize_bilinear", pooling(resized)},
      {"sgd", run_sgd}};
}

}  // namespace ssn::test
