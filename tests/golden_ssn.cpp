#include <algorithm>

#include "autograd/optimizer.h"
#include "autograd/parameters.h"
#include "ssn/allocation.h"
#include "ssn/initialise.h"
#include "tests/golden_case.h"

// Adapters for the rules of Shapeshifter Networks.
namespace ssn::test {
namespace {

Shape shape_of(const GoldenCase& c, int layer) {
  return Shape(c.integers(fmt::format("shape{}", layer)));
}

int layer_count(const GoldenCase& c) {
  int n = 0;
  while (c.attributes.contains(fmt::format("shape{}", n))) ++n;
  return n;
}

std::vector<std::int64_t> to_vector(const Tensor& t) {
  const Tensor wide = t.to(DType::i64);
  const auto s = wide.span<std::int64_t>();
  return {s.begin(), s.end()};
}

Tensor of_integers(const std::vector<std::int64_t>& v) {
  return Tensor::of<std::int64_t>({static_cast<std::int64_t>(v.size())}, v);
}

GoldenResult run_alloc(const GoldenCase& c, const Cotangents&, DType, Device) {
  const Tensor table = c.inputs.at("shapes");
  const auto dims = to_vector(table);
  std::vector<Shape> shapes;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < dims.size(); i += 4) {
    std::vector<std::int64_t> s(dims.begin() + static_cast<std::ptrdiff_t>(i),
                                dims.begin() + static_cast<std::ptrdiff_t>(i + 4));
    std::erase(s, -1);
    shapes.emplace_back(s);
    sizes.push_back(shapes.back().size());
  }
  const std::int64_t group = c.integer("N");
  const int templates = static_cast<int>(c.integer("K"));
  const Offsets offsets = c.text("alloc") == "cursor" ? allocate_cursor(sizes, group, templates)
                                                      : allocate_ref_block(shapes, group, templates);
  // A layer that is larger than its group reads all of it: one template at 0.
  std::vector<std::int64_t> counts, flat;
  std::size_t most = 1;
  for (const auto& o : offsets) most = std::max(most, o.size());
  for (const auto& o : offsets) {
    const std::vector<std::int64_t> row = o.empty() ? std::vector<std::int64_t>{0} : o;
    counts.push_back(static_cast<std::int64_t>(row.size()));
    for (std::size_t k = 0; k < most; ++k) flat.push_back(k < row.size() ? row[k] : -1);
  }
  const auto layers = static_cast<std::int64_t>(offsets.size());
  return {{{"n_templates", of_integers(counts)},
           {"offsets", of_integers(flat).view({layers, static_cast<std::int64_t>(most)})}},
          {}};
}

GoldenResult run_budget(const GoldenCase& c, const Cotangents&, DType, Device) {
  const auto labels = to_vector(c.inputs.at("group"));
  const std::vector<int> groups(labels.begin(), labels.end());
  const auto exact =
      split_budget(to_vector(c.inputs.at("sizes")), groups, static_cast<int>(c.integer("P")), c.integer("B"));
  return {{{"exact", of_integers(exact)}},
          {},
          {"ref"}};  // ref: the published code's rounding, which may overshoot
}

GoldenResult run_orthogonal(const GoldenCase& c, const Cotangents&, DType, Device) {
  const Tensor& a = c.inputs.at("a");
  const auto s = a.span<double>();
  const auto q = orthonormal_rows({s.begin(), s.end()}, a.shape()[0], a.shape()[1]);
  return {{{"q", Tensor::of<double>(a.shape(), q)}}, {}};
}

/// The layers of a case as recipes over one theta: by templates (offsets in the case's meta data), exact, or
/// masked tiles.
struct Group {
  std::map<std::string, Var> leaves;
  std::vector<WeightRecipe> recipes;
  std::vector<std::string> coefficients;  // each layer's: a name in leaves, or empty
};

Group make_group(const GoldenCase& c, const std::string& prefix, DType dtype, Device device) {
  Group g;
  const Var theta = g.leaves["theta"] = leaf(c, prefix + "theta", dtype, device);
  const auto optional = [&](const std::string& name) {
    if (!c.has(prefix + name)) return Var();
    if (!g.leaves.contains(name)) g.leaves[name] = leaf(c, prefix + name, dtype, device);
    return g.leaves[name];
  };
  for (int i = 0; i < layer_count(c); ++i) {
    WeightRule rule{
        .method = WeightRule::Method::exact, .shape = shape_of(c, i), .offsets = {0}, .window = 9};
    std::string name;
    if (rule.shape.size() > theta.size()) {
      rule.method = WeightRule::Method::tiles;
      rule.offsets = {};
      rule.window = c.integer("window");
      name = c.has(prefix + "mask") ? "mask" : fmt::format("mask{}", i);
    } else {
      rule.offsets = to_vector(c.inputs.at(fmt::format("offsets{}", i)));
      name = fmt::format("alpha{}", i);
      if (c.has(prefix + name)) rule.method = WeightRule::Method::templates;
    }
    g.recipes.push_back({rule, theta, optional(name)});
    g.coefficients.push_back(c.has(prefix + name) ? name : "");
  }
  return g;
}

/// Policy eager: one call for the list in both directions. Policy lean must give the same (compared here by
/// the harness: one of the two precisions uses the one, the other the other).
GoldenResult run_group(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  const Group g = make_group(c, "", dtype, device);
  if (dtype == DType::f32) {
    std::map<std::string, Var> weights;
    for (std::size_t i = 0; i < g.recipes.size(); ++i)
      weights[fmt::format("w{}", i)] = generated_weight(g.recipes[i]);
    return finish(weights, g.leaves, gout);
  }
  GoldenResult r;
  std::vector<Tensor> grads;
  const std::vector<Tensor> weights = generate(g.recipes);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string name = fmt::format("w{}", i);
    r.outputs[name] = weights[i];
    grads.push_back(gout.at(name).to(dtype).to(device));
  }
  generate_backward(g.recipes, grads);
  for (const auto& [name, x] : g.leaves) r.grads[name] = x.grad_buffer();
  return r;
}

GoldenResult run_mask(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  if (c.integer("tile") != c.integer("N"))
    throw Skip{"tiles cut to a multiple of the window (the published code's rule)"};
  return run_group(c, gout, dtype, device);
}

GoldenResult run_mixed(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  if (c.text("mode") != "wavg") throw Skip{c.text("mode") + ": no such combination yet"};
  return run_group(c, gout, dtype, device);
}

/// Three steps of the tiny network that the case's rule describes.
class EndToEnd {
 public:
  EndToEnd(const GoldenCase& c, DType dtype, Device device)
      : c_(c), dtype_(dtype), device_(device), parameters_(dtype, device) {
    const Group group = make_group(c, "p_", dtype, device);
    for (const auto& [name, unused] : group.leaves) add(name, !name.starts_with("alpha"));
    for (int i = 0; i < 3; ++i) {
      add(fmt::format("gamma{}", i), true);
      add(fmt::format("beta{}", i), true);
      const Shape channels = c.inputs.at(fmt::format("p_gamma{}", i)).shape();
      running_.push_back(Tensor::full(channels, 0, dtype, device));
      running_.push_back(Tensor::full(channels, 1, dtype, device));
    }
    parameters_.build();
    for (std::size_t i = 0; i < group.recipes.size(); ++i) {
      const std::string& name = group.coefficients[i];
      recipes_.push_back(
          {group.recipes[i].rule, leaves_.at("theta"), name.empty() ? Var() : leaves_.at(name)});
    }
  }

  GoldenResult run() {
    GoldenResult result;
    Sgd sgd(parameters_,
            {.momentum = c_.number("momentum"), .decay = c_.number("weight_decay"), .nesterov = true});
    const Tensor x = c_.inputs.at("x"), labels = c_.inputs.at("y").to(DType::i32);
    const std::int64_t batch = x.shape()[1], image = x.size() / x.shape()[0];
    std::vector<double> losses;
    for (std::int64_t step = 0; step < c_.integer("steps"); ++step) {
      const Tensor images = x.slice(step * image, {batch, x.shape()[2], x.shape()[3], x.shape()[4]});
      const Var loss = cross_entropy(forward(images, true), labels.slice(step * batch, {batch}).to(device_),
                                     0, 1.0 / static_cast<double>(batch));
      parameters_.zero_gradients();
      backward(loss);
      losses.push_back(loss.value().to(Device::cpu).to(DType::f64).span<double>()[0]);
      if (step == 0)
        for (const auto& [name, v] : leaves_) result.outputs["g0_" + name] = v.grad().clone();
      sgd.step(parameters_, c_.number("lr"));
    }
    result.outputs["losses"] = Tensor::of<double>({static_cast<std::int64_t>(losses.size())}, losses);
    for (const auto& [name, v] : leaves_) result.outputs["p_" + name] = v.value();
    for (int i = 0; i < 3; ++i) {
      result.outputs[fmt::format("running_mean{}", i)] = running_[static_cast<std::size_t>(2 * i)];
      result.outputs[fmt::format("running_var{}", i)] = running_[static_cast<std::size_t>(2 * i + 1)];
    }
    const NoGrad no_grad;
    result.outputs["eval_logits"] = forward(c_.inputs.at("x_eval"), false).value();
    return result;
  }

 private:
  void add(const std::string& name, bool decay) {
    const Tensor start = c_.inputs.at("p_" + name);
    leaves_[name] = parameters_.add(
        name, start.shape(), name == "theta" ? Section::group : Section::ordinary, decay,
        [start](std::int64_t i) { return start.span<double>()[static_cast<std::size_t>(i)]; });
  }

  Var norm(const Var& x, int i, bool training) const {
    return batch_norm(x, leaves_.at(fmt::format("gamma{}", i)), leaves_.at(fmt::format("beta{}", i)),
                      running_[static_cast<std::size_t>(2 * i)],
                      running_[static_cast<std::size_t>(2 * i + 1)], {.training = training, .relu = true});
  }

  Var forward(const Tensor& images, bool training) const {
    const auto weight = [&](std::size_t i) { return generated_weight(recipes_[i]); };
    Var h = Var::constant(channels_last(images).to(dtype_).to(device_));
    h = norm(conv2d(h, weight(0), {.padding = {1, 1}}), 0, training);
    h = norm(conv2d(h, weight(1), {.stride = {2, 2}, .padding = {1, 1}}), 1, training);
    h = norm(conv2d(h, weight(2)), 2, training);
    return linear(global_avg_pool(h), weight(3));
  }

  const GoldenCase& c_;
  DType dtype_;
  Device device_;
  Parameters parameters_;
  std::map<std::string, Var> leaves_;
  std::vector<Tensor> running_;
  std::vector<WeightRecipe> recipes_;
};

GoldenResult run_end_to_end(const GoldenCase& c, const Cotangents&, DType dtype, Device device) {
  if (c.text("mode") != "wavg") throw Skip{c.text("mode") + ": no such combination yet"};
  if (device == Device::cuda) throw Skip{"convolution and matrix product have no CUDA kernel yet"};
  return EndToEnd(c, dtype, device).run();
}

}  // namespace

std::map<std::string, Adapter> golden_ssn_adapters() {
  return {{"ssn_alloc", run_alloc},     {"ssn_budget", run_budget}, {"orthogonal", run_orthogonal},
          {"ssn_down_wavg", run_group}, {"ssn_up_mask", run_mask},  {"ssn_group", run_mixed},
          {"ssn_e2e", run_end_to_end}};
}

}  // namespace ssn::test
