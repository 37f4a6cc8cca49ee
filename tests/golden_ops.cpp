#include <algorithm>

#include "autograd/optimizer.h"
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
  const Var x = leaf(c, "x", dtype, device), w = leaf(c, "w", dtype, device);
  std::map<std::string, Var> leaves = {{"x", x}, {"w", w}};
  Var y = linear(x, w);
  if (c.has("b")) y = bias_add(y, leaves["b"] = leaf(c, "b", dtype, device));
  return finish({{"y", y}}, leaves, gout);
}

Adapter pointwise(std::function<Var(const Var&)> f) {
  return [f](const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
    const Var x = leaf(c, "x", dtype, device);
    return finish({{"y", f(x)}}, {{"x", x}}, gout);
  };
}

GoldenResult run_layer_norm(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  const Var x = leaf(c, "x", dtype, device), gain = leaf(c, "gamma", dtype, device),
            bias = leaf(c, "beta", dtype, device);
  const Shape columns{gain.size()};
  const Var y = layer_norm(reshape(x, {x.size() / gain.size(), gain.size()}), reshape(gain, columns),
                           reshape(bias, columns), c.number("eps"));
  return finish({{"y", reshape(y, x.shape())}}, {{"x", x}, {"gamma", gain}, {"beta", bias}}, gout);
}

GoldenResult run_embedding(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  if (c.integer("padding_idx") >= 0) throw Skip{"a row without gradient"};
  const Var table = leaf(c, "table", dtype, device);
  const Tensor& ids = c.inputs.at("idx");
  const Var y = embedding(table, ids.view({ids.size()}).to(DType::i32).to(device));
  const Shape& s = ids.shape();
  return finish({{"y", reshape(y, {s[0], s[1], y.shape()[1]})}}, {{"table", table}}, gout);
}

/// Key padding must be behind a sample's keys.
Tensor key_lengths(const GoldenCase& c, std::int64_t n, std::int64_t keys) {
  Tensor lengths = Tensor::empty({n}, DType::i32);
  std::ranges::fill(lengths.span<std::int32_t>(), static_cast<std::int32_t>(keys));
  if (!c.has("key_pad")) return lengths;
  const auto ignored = c.inputs.at("key_pad").span<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto row = ignored.subspan(static_cast<std::size_t>(i * keys), static_cast<std::size_t>(keys));
    if (!std::ranges::is_sorted(row)) throw Skip{"padding between the keys"};
    lengths.span<std::int32_t>()[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>(std::ranges::count(row, 0));
  }
  return lengths;
}

GoldenResult run_attention(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  if (device == Device::cuda) throw Skip{"no CUDA kernel yet"};
  if (c.integer("causal") != 0) throw Skip{"causal"};
  std::map<std::string, Var> leaves;
  const auto input = [&](const std::string& name) { return leaves[name] = leaf(c, name, dtype, device); };
  const auto projected = [&](const Var& rows, const std::string& name) {
    const Var w = input("w" + name);
    return c.has("b" + name) ? linear(rows, w, input("b" + name)) : linear(rows, w);
  };
  const auto rows_of = [&](const std::string& name) {
    const Var x = input(name);
    return projected(reshape(x, {x.shape()[0] * x.shape()[1], x.shape()[2]}), name);
  };
  const Shape q = c.inputs.at("q").shape(), k = c.inputs.at("k").shape();
  const Var y = attention(rows_of("q"), rows_of("k"), rows_of("v"), key_lengths(c, k[0], k[1]),
                          {.heads = c.integer("heads")});
  return finish({{"y", reshape(projected(y, "o"), q)}}, leaves, gout);
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

/// Steps t of the parameters p (and q), each against its row of the gradients.
GoldenResult run_optimizer(const GoldenCase& c, OptimizerOptions o, DType dtype, Device device) {
  Parameters parameters(dtype, device);
  GoldenResult result;
  const Tensor lr = c.inputs.at("lr");
  const std::int64_t steps = lr.size();
  const std::pair<std::string, std::string> known[] = {{"p", "grads"}, {"q", "qgrads"}};
  for (const auto& [name, gradients] : known) {
    if (!c.has(name + "0")) continue;
    const Tensor start = c.inputs.at(name + "0");
    parameters.add(name, start.shape(), Section::ordinary, true,
                   [start](std::int64_t i) { return start.data<double>()[i]; });
    result.outputs[name] = Tensor::empty(c.inputs.at(gradients).shape(), dtype, device);
  }
  parameters.build();
  o.decay = c.number("weight_decay");
  const auto optimizer = make_optimizer(o, parameters);
  for (std::int64_t t = 0; t < steps; ++t) {
    for (const auto& [name, gradients] : known) {
      if (!c.has(name + "0")) continue;
      const Var& p = parameters.entry(name).leaf;
      p.grad_buffer().copy_from(c.inputs.at(gradients).slice(t * p.shape().size(), p.shape()).to(dtype));
    }
    optimizer->step(parameters, lr.data<double>()[t]);
    for (const auto& [name, history] : result.outputs) {
      const Var& p = parameters.entry(name).leaf;
      history.slice(t * p.shape().size(), p.shape()).copy_from(p.value());
    }
  }
  return result;
}

GoldenResult run_sgd(const GoldenCase& c, const Cotangents&, DType dtype, Device device) {
  return run_optimizer(c, {.momentum = c.number("momentum"), .nesterov = c.integer("nesterov") != 0}, dtype,
                       device);
}

GoldenResult run_rmsprop(const GoldenCase& c, const Cotangents&, DType dtype, Device device) {
  return run_optimizer(c,
                       {.kind = OptimizerKind::rmsprop,
                        .momentum = c.number("momentum"),
                        .beta2 = c.number("alpha"),
                        .epsilon = c.number("eps")},
                       dtype, device);
}

Adapter adam(OptimizerKind kind) {
  return [kind](const GoldenCase& c, const Cotangents&, DType dtype, Device device) {
    if (kind == OptimizerKind::lamb && c.integer("bias_correction") == 0) throw Skip{"without corrections"};
    return run_optimizer(
        c, {.kind = kind, .beta1 = c.number("beta1"), .beta2 = c.number("beta2"), .epsilon = c.number("eps")},
        dtype, device);
  };
}

}  // namespace

std::map<std::string, Adapter> golden_op_adapters() {
  return {
      {"conv2d", run_conv2d},
      {"linear", run_linear},
      {"relu", pointwise(relu)},
      {"tanh", pointwise(ssn::tanh)},
      {"gelu", pointwise(gelu)},
      {"sigmoid", pointwise(sigmoid)},
      {"silu", pointwise(silu)},
      {"layernorm", run_layer_norm},
      {"embedding", run_embedding},
      {"mha", run_attention},
      {"cross_entropy", run_cross_entropy},
      {"batchnorm", run_batchnorm},
      {"maxpool2d", pooling([](const Var& x, const GoldenCase& c) { return max_pool(x, pool_options(c)); })},
      {"avgpool2d", pooling([](const Var& x, const GoldenCase& c) { return avg_pool(x, pool_options(c)); })},
      {"adaptive_avgpool2d", pooling(adaptive_avg_pool)},
      {"resize_bilinear", pooling(resized)},
      {"sgd", run_sgd},
      {"adam", adam(OptimizerKind::adam)},
      {"adamw", adam(OptimizerKind::adamw)},
      {"lamb", adam(OptimizerKind::lamb)},
      {"rmsprop_tf", run_rmsprop}};
}

}  // namespace ssn::test
