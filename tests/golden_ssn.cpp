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

/// The layers of a case as recipes over one theta, and their leaves by name.
struct Group {
  std::map<std::string, Var> leaves;
  std::vector<WeightRecipe> recipes;
};

/// The leaf of an input, made at its first request; none if the case has no such input.
class Leaves {
 public:
  Leaves(const GoldenCase& c, std::string prefix, DType dtype, Device device,
         std::map<std::string, Var>& leaves)
      : c_(c), prefix_(std::move(prefix)), dtype_(dtype), device_(device), leaves_(leaves) {}
  Var operator()(const std::string& name) const {
    if (!c_.has(prefix_ + name)) return {};
    if (!leaves_.contains(name)) leaves_[name] = leaf(c_, prefix_ + name, dtype_, device_);
    return leaves_[name];
  }

 private:
  const GoldenCase& c_;
  std::string prefix_;
  DType dtype_;
  Device device_;
  std::map<std::string, Var>& leaves_;
};

/// A layer that is not larger than its group: templates at the places of the case's meta data.
void add_coefficients(const GoldenCase& c, const Leaves& leaves, int layer, WeightRecipe& r) {
  const auto templates = std::ssize(r.rule.offsets);
  r.coefficients = leaves(fmt::format("alpha{}", layer));
  if (const Var phi = leaves(fmt::format("phi{}", layer))) {
    const bool first_rows = c.attributes.contains("emb_rule") && c.text("emb_rule") == "first_rows";
    const std::string of =
        c.op == "ssn_prelim" ? "" : fmt::format("{}", first_rows ? c.integer("K") : templates);
    r.coefficients = phi;
    r.projection = leaves("W" + of);
    r.projection_bias = leaves("b" + of);
  }
  if (r.coefficients || c.op == "ssn_down_avg") r.rule.method = WeightRule::Method::templates;
}

Group make_group(const GoldenCase& c, const std::string& prefix, DType dtype, Device device) {
  Group g;
  const Leaves leaves(c, prefix, dtype, device, g.leaves);
  const Var theta = leaves("theta");
  for (int i = 0; i < layer_count(c); ++i) {
    WeightRecipe r{{.shape = shape_of(c, i), .offsets = {0}}, theta};
    if (r.rule.shape.size() > theta.size()) {
      r.rule.method = WeightRule::Method::tiles;
      r.rule.offsets = {};
      if (c.attributes.contains("tile")) r.rule.tile = c.integer("tile");
      if (c.attributes.contains("window")) r.rule.window = c.integer("window");
      r.coefficients = c.has(prefix + "mask") ? leaves("mask") : leaves(fmt::format("mask{}", i));
    } else {
      r.rule.offsets = to_vector(c.inputs.at(fmt::format("offsets{}", i)));
      add_coefficients(c, leaves, i, r);
    }
    g.recipes.push_back(std::move(r));
  }
  return g;
}

/// Policy eager: one call for the list in both directions. Policy lean must give the same (compared here by
/// the harness: one of the two precisions uses the one, the other the other).
GoldenResult run_recipes(const Group& g, const Cotangents& gout, DType dtype, Device device) {
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

GoldenResult run_group(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  return run_recipes(make_group(c, "", dtype, device), gout, dtype, device);
}

/// The whole group, or its first elements, as a matrix.
GoldenResult run_inter(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  Group g;
  const Leaves leaves(c, "", dtype, device, g.leaves);
  g.recipes.push_back({{.shape = shape_of(c, 0),
                        .offsets = {0},
                        .resize = WeightRule::Resize{c.integer("in_rows"), c.integer("in_cols"),
                                                     c.integer("out_rows"), c.integer("out_cols")}},
                       leaves("theta")});
  return run_recipes(g, gout, dtype, device);
}

/// The preliminary step: K' templates, resized to every layer.
GoldenResult run_prelim(const GoldenCase& c, const Cotangents& gout, DType dtype, Device device) {
  Group g;
  const Leaves leaves(c, "", dtype, device, g.leaves);
  for (int i = 0; i < layer_count(c); ++i) {
    const auto grid = c.integers(fmt::format("grid{}", i));  // rows, columns, stride between templates
    WeightRecipe r;
    r.rule.shape = shape_of(c, i);
    r.theta = leaves("theta");
    const std::int64_t rows = r.rule.shape[0];
    for (std::int64_t k = 0; k < c.integer("Kprime"); ++k) r.rule.offsets.push_back(k * grid[2]);
    r.rule.softmax = c.integer("softmax") != 0;
    r.rule.resize = {grid[0], grid[1], rows, r.rule.shape.size() / rows};
    add_coefficients(c, leaves, i, r);
    g.recipes.push_back(std::move(r));
  }
  return run_recipes(g, gout, dtype, device);
}

/// Three steps of the tiny network that the case's rule describes.
class EndToEnd {
 public:
  EndToEnd(const GoldenCase& c, DType dtype, Device device)
      : c_(c), dtype_(dtype), device_(device), parameters_(dtype, device) {
    const Group group = make_group(c, "p_", dtype, device);
    for (const auto& [name, unused] : group.leaves)
      add(name, !name.starts_with("alpha") && !name.starts_with("phi"));
    for (int i = 0; i < 3; ++i) {
      add(fmt::format("gamma{}", i), true);
      add(fmt::format("beta{}", i), true);
      const Shape channels = c.inputs.at(fmt::format("p_gamma{}", i)).shape();
      running_.push_back(Tensor::full(channels, 0, dtype, device));
      running_.push_back(Tensor::full(channels, 1, dtype, device));
    }
    parameters_.build();
    recipes_ = group.recipes;
    for (const auto& [name, leaf] : group.leaves)
      leaf.bind(leaves_.at(name).value(), parameters_.entry(name).leaf.grad_buffer());
  }

  GoldenResult run() {
    GoldenResult result;
    const auto optimizer =
        make_optimizer({.momentum = c_.number("momentum"), .decay = c_.number("weight_decay")}, parameters_);
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
      optimizer->step(parameters_, c_.number("lr"));
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
                      running_[static_cast<std::size_t>(2 * i + 1)],
                      {.training = training, .activation = Activation::relu});
  }

  Var conv(const Var& x, std::size_t i, const ConvOptions& options) const {
    return conv2d(x, generated_weight(recipes_[i]), options);
  }

  Var forward(const Tensor& images, bool training) const {
    Var h = Var::constant(channels_last(images).to(dtype_).to(device_));
    h = norm(conv(h, 0, {.padding = {1, 1}}), 0, training);
    h = norm(conv(h, 1, {.stride = {2, 2}, .padding = {1, 1}}), 1, training);
    h = norm(conv(h, 2, {}), 2, training);
    return linear(global_avg_pool(h), generated_weight(recipes_[3]));
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
  return EndToEnd(c, dtype, device).run();
}

}  // namespace

std::map<std::string, Adapter> golden_ssn_adapters() {
  return {{"ssn_alloc", run_alloc},     {"ssn_budget", run_budget},  {"orthogonal", run_orthogonal},
          {"ssn_down_wavg", run_group}, {"ssn_down_emb", run_group}, {"ssn_down_avg", run_group},
          {"ssn_down_rr", run_group},   {"ssn_up_mask", run_group},  {"ssn_up_repeat", run_group},
          {"ssn_up_inter", run_inter},  {"ssn_prelim", run_prelim},  {"ssn_group", run_group},
          {"ssn_e2e", run_end_to_end}};
}

}  // namespace ssn::test
