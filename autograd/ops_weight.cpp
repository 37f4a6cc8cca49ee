#include <utility>

#include "autograd/flops.h"
#include "autograd/fused_linear.h"
#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/coefficients.h"
#include "kernels/generate.h"
#include "kernels/generated_linear.h"
#include "kernels/resize.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

using Method = WeightRule::Method;

/// The masked tiles behind the first that cover n weights from N parameters.
std::int64_t masks_of(std::int64_t n, std::int64_t group_size) {
  return n > 0 ? (n + group_size - 1) / group_size - 1 : 0;
}

/// Rows and columns of what is combined, where that is resized: else the weight's own.
Shape combined_shape(const WeightRule& rule) {
  return rule.resize ? Shape{rule.resize->rows, rule.resize->cols} : rule.shape;
}

/// Its format: what is resized becomes a weight in theta's own first.
WeightFormat combined_format(const WeightRecipe& r) {
  return r.rule.resize ? WeightFormat() : r.format;
}

bool is_mean(const WeightRecipe& r) {
  return r.rule.method == Method::templates && !r.coefficients;
}

void check_tiles(const WeightRecipe& r, Where where) {
  const WeightRule& rule = r.rule;
  const std::int64_t n = rule.shape.size(), size = r.theta.size(), tile = rule.tile ? rule.tile : size;
  check(tile >= 0 && tile <= size && (tile > 0 || n == 0), where,
        "a tile has {} elements; it must be part of the group's {} parameters", tile, size);
  check(!rule.resize, where, "tiles are not resized");
  if (!r.coefficients) return;
  const Shape& mask = r.coefficients.shape();
  check(rule.window >= 1, where, "the masks' window is {}; it must be positive", rule.window);
  const std::int64_t masks = masks_of(n, tile);
  check(mask.rank() == 2 && mask[0] >= masks && mask[1] == rule.window, where,
        "{} weights from tiles of {} parameters need masks of at least {}x{}, found {}", n, tile, masks,
        rule.window, mask.text());
}

void check_templates(const WeightRecipe& r, Where where) {
  const WeightRule& rule = r.rule;
  if (rule.resize)
    check(rule.resize->rows > 0 && rule.resize->cols > 0 && rule.resize->to_rows > 0 &&
              rule.resize->to_rows * rule.resize->to_cols == rule.shape.size() && rule.shape.size() > 0,
          where, "a {}x{} matrix cannot be resized to {}x{} for a weight of shape {}", rule.resize->rows,
          rule.resize->cols, rule.resize->to_rows, rule.resize->to_cols, rule.shape.text());
  const std::int64_t n = combined_shape(rule).size(), size = r.theta.size();
  for (std::int64_t o : rule.offsets)
    check(o >= 0 && o <= size - n, where, "a template of {} elements at {} leaves the group's {} parameters",
          n, o, size);
  const auto templates = static_cast<std::int64_t>(rule.offsets.size());
  if (rule.method == Method::exact)
    return check(templates == 1 && !r.coefficients, where,
                 "an exact weight has one offset and no coefficients");
  check(templates > 0, where, "a sum of templates needs at least one");
  if (!r.coefficients || r.projection) return;
  check(r.coefficients.shape() == Shape{templates}, where, "{} templates need {} coefficients, found {}",
        templates, templates, r.coefficients.shape().text());
}

void check_projection(const WeightRecipe& r, Where where) {
  if (r.rule.softmax)
    check(r.rule.method == Method::templates && r.coefficients, where,
          "a softmax needs templates with coefficients");
  check(bool(r.projection) == bool(r.projection_bias), where,
        "a projection has a matrix and a bias: one of them is missing");
  if (!r.projection) return;
  const auto templates = static_cast<std::int64_t>(r.rule.offsets.size());
  const Shape &w = r.projection.shape(), &b = r.projection_bias.shape();
  check(r.rule.method == Method::templates && r.coefficients && r.coefficients.shape().rank() == 1, where,
        "a projection needs templates and the layer's embedding, a vector");
  check(
      w.rank() == 2 && w[0] >= templates && w[1] == r.coefficients.size() && b.rank() == 1 &&
          b[0] >= templates,
      where,
      "{} templates and an embedding of {} need a projection of at least {}x{} and its bias, found {} and {}",
      templates, r.coefficients.size(), templates, r.coefficients.size(), w.text(), b.text());
}

void check_recipe(const WeightRecipe& r, Where where) {
  check(r.theta && r.theta.shape().rank() == 1 && (r.theta.size() > 0 || r.rule.shape.size() == 0), where,
        "theta must be a vector of the group's parameters, and not empty");
  if (r.rule.method == Method::tiles)
    check_tiles(r, where);
  else
    check_templates(r, where);
  check_projection(r, where);
  check(!r.format.half || r.theta.dtype() == DType::f32, where, "a bf16 weight needs an f32 theta, found {}",
        name_of(r.theta.dtype()));
  for (const Var* v : {&r.coefficients, &r.projection, &r.projection_bias})
    check(!*v || (v->dtype() == r.theta.dtype() && v->device() == r.theta.device()), where,
          "coefficients and theta must have one type and device");
}

void check_recipes(std::span<const WeightRecipe> recipes, Where where) {
  for (const auto& r : recipes) {
    check_recipe(r, where);
    check(r.theta.value().raw() == recipes[0].theta.value().raw(), where,
          "the layers of one call must share one group's theta");
  }
}

/// Coefficients that are computed rather than trained: a projection's, a softmax's, a mean's.
template <class T>
struct Computed {
  std::vector<Tensor> values, grads;  // of each recipe; empty where the trained ones are used as they are
  std::vector<kernels::LayerCoefficients<T>> layers;
  Tensor plain;

  /// Computes them. With `backward`, there are gradients to add into, which carry_back() hands on.
  template <class Queue>
  Computed(Queue& q, std::span<const WeightRecipe> recipes, bool backward)
      : values(recipes.size()), grads(recipes.size()) {
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      const WeightRecipe& r = recipes[i];
      const auto count = static_cast<std::int64_t>(r.rule.offsets.size());
      if (is_mean(r))
        values[i] =
            Tensor::full({count}, 1.0 / static_cast<double>(count), r.theta.dtype(), r.theta.device());
      if (r.projection || r.rule.softmax) add(i, r, count, backward);
    }
    if (layers.empty()) return;
    plain = Tensor::empty({kernels::coefficients_workspace<T>(std::ssize(layers))}, DType::u8,
                          recipes[0].theta.device());
    kernels::coefficients_forward(q, std::span<const kernels::LayerCoefficients<T>>(layers), plain.raw());
  }

  template <class Queue>
  void carry_back(Queue& q) {
    if (layers.empty()) return;
    kernels::coefficients_backward(q, std::span<const kernels::LayerCoefficients<T>>(layers), plain.raw());
  }

 private:
  void add(std::size_t i, const WeightRecipe& r, std::int64_t count, bool backward) {
    values[i] = Tensor::empty({count}, r.theta.dtype(), r.theta.device());
    kernels::LayerCoefficients<T> layer{};
    layer.count = count;
    layer.embedding = r.coefficients.size();
    layer.softmax = r.rule.softmax;
    layer.phi = r.coefficients.value().template data<T>();
    layer.alpha = values[i].template data<T>();
    const auto grad_of = [&](const Var& v) {
      return backward && v.wants_grad() ? v.grad_buffer().template data<T>() : nullptr;
    };
    layer.phi_grad = grad_of(r.coefficients);
    if (r.projection) {
      layer.projection = r.projection.value().template data<T>();
      layer.bias = r.projection_bias.value().template data<T>();
      layer.projection_grad = grad_of(r.projection);
      layer.bias_grad = grad_of(r.projection_bias);
    }
    if (backward) {
      grads[i] = Tensor::zeros({count}, r.theta.dtype(), r.theta.device());
      layer.alpha_grad = grads[i].template data<T>();
    }
    layers.push_back(layer);
  }
};

/// The kernels' view of a recipe: of the matrix to be resized, where there is one. Buffers are owned by their
/// Vars and by `computed`, so that pointers stay valid.
template <class T>
kernels::GeneratedLayer<T> layer_of(const WeightRecipe& r, const Tensor& computed) {
  using L = kernels::GeneratedLayer<T>;
  const WeightRule& rule = r.rule;
  L layer{};
  layer.method = rule.method == Method::tiles   ? L::Method::tiles
                 : rule.method == Method::exact ? L::Method::exact
                                                : L::Method::templates;
  layer.n = combined_shape(rule).size();
  if (rule.method != Method::tiles) {
    layer.templates = static_cast<int>(rule.offsets.size());
    layer.offsets = rule.offsets.data();
  } else {
    layer.window = rule.window;
    layer.tile = rule.tile;
  }
  layer.gain = static_cast<T>(rule.gain);
  const WeightFormat format = combined_format(r);
  layer.half = format.half;
  if (format.channels_last && rule.shape.rank() == 4)
    layer.channels = rule.shape[1], layer.taps = rule.shape[2] * rule.shape[3];
  if (computed)
    layer.coefficients = computed.data<T>();
  else if (r.coefficients)
    layer.coefficients = r.coefficients.value().template data<T>();
  return layer;
}

kernels::ResizeGeometry geometry(const WeightRule::Resize& r) {
  return {1, r.rows, r.cols, 1, r.to_rows, r.to_cols};
}

/// Whether what is combined is a stretch of theta as it is. Where the channels would be last, of windows of
/// one, only if libraries can read it in their large steps.
bool is_view(const WeightRecipe& r) {
  constexpr std::int64_t kStep = 16;  // elements
  if (r.rule.method != Method::exact || r.rule.gain != 1) return false;
  const WeightFormat format = combined_format(r);
  const Shape& shape = r.rule.shape;
  if (!format.channels_last || shape.rank() != 4) return !format.half;
  return !format.half && shape[2] * shape[3] == 1 && r.rule.offsets[0] % kStep == 0;
}

/// Memory for what is combined, or the view.
Tensor combined(const WeightRecipe& r) {
  const Shape shape = r.rule.resize ? combined_shape(r.rule) : shape_in(r.format, r.rule.shape);
  if (is_view(r)) return r.theta.value().slice(r.rule.offsets[0], shape);
  return Tensor::empty(shape, combined_format(r).half ? DType::bf16 : r.theta.dtype(), r.theta.device());
}

/// The weight made of what was combined.
Tensor resized(const WeightRecipe& r, const Tensor& matrix) {
  const WeightRule& rule = r.rule;
  const Tensor weight = Tensor::empty(rule.shape, matrix.dtype(), matrix.device());
  dispatch(matrix.device(), matrix.dtype(), "resize", [&]<class T>(auto& q) {
    kernels::resize_bilinear_forward(q, geometry(*rule.resize), matrix.data<T>(), weight.data<T>());
  });
  return reformatted(weight, rule.shape, {}, r.format);
}

/// The gradient of what was combined.
Tensor resized_back(const WeightRecipe& r, const Tensor& given) {
  const WeightRule& rule = r.rule;
  const Tensor weight_grad = reformatted(given, rule.shape, r.format, {});
  const Tensor grad = Tensor::empty(combined_shape(rule), weight_grad.dtype(), weight_grad.device());
  dispatch(grad.device(), grad.dtype(), "resize_backward", [&]<class T>(auto& q) {
    kernels::resize_bilinear_backward(q, geometry(*rule.resize), weight_grad.data<T>(), grad.data<T>());
  });
  return grad;
}

struct Workspace {
  Tensor elements, plain;
};
/// Workspace for one call on these layers.
template <class T, class Queue>
Workspace workspace(Queue& q, std::span<const kernels::GeneratedLayer<T>> layers, std::int64_t group_size,
                    Device device) {
  const kernels::GenerateWorkspace w = kernels::generate_workspace(q, layers, group_size);
  return {Tensor::empty({w.elements}, dtype_of<T>, device), Tensor::empty({w.bytes}, DType::u8, device)};
}

void check_gradients(std::span<const WeightRecipe> recipes, std::span<const Tensor> weight_grads) {
  check(recipes.size() == weight_grads.size(), "generate_backward", "{} layers, {} gradients", recipes.size(),
        weight_grads.size());
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const WeightRecipe& r = recipes[i];
    const Shape shape = shape_in(r.format, r.rule.shape);
    check(weight_grads[i].shape() == shape && weight_grads[i].dtype() == r.theta.dtype(), "generate_backward",
          "the weight is {} of {} parameters, its gradient {} {}", shape.text(), name_of(r.theta.dtype()),
          weight_grads[i].shape().text(), name_of(weight_grads[i].dtype()));
  }
}

}  // namespace

std::vector<Tensor> generate(std::span<const WeightRecipe> recipes) {
  check_recipes(recipes, "generate");
  std::vector<Tensor> weights;
  bool work = false;
  for (const auto& r : recipes) {
    weights.push_back(combined(r));
    work = work || r.rule.resize || (!is_view(r) && weights.back().size() > 0);
  }
  if (!work) return weights;
  const Var& theta = recipes[0].theta;
  dispatch(theta.device(), theta.dtype(), "generate", [&]<class T>(auto& q) {
    const Computed<T> computed(q, recipes, false);
    std::vector<kernels::GeneratedLayer<T>> layers;
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      if (is_view(recipes[i])) continue;
      layers.push_back(layer_of<T>(recipes[i], computed.values[i]));
      layers.back().weight = weights[i].raw();
    }
    const std::span<const kernels::GeneratedLayer<T>> list(layers);
    const Workspace scratch = workspace(q, list, theta.size(), theta.device());
    kernels::generate_forward(q, list, theta.size(), theta.value().data<T>(), scratch.plain.raw());
  });
  for (std::size_t i = 0; i < recipes.size(); ++i)
    if (recipes[i].rule.resize) weights[i] = resized(recipes[i], weights[i]);
  return weights;
}

void generate_backward(std::span<const WeightRecipe> recipes, std::span<const Tensor> weight_grads) {
  check_recipes(recipes, "generate_backward");
  check_gradients(recipes, weight_grads);
  if (recipes.empty() || recipes[0].theta.size() == 0) return;
  const Var& theta = recipes[0].theta;
  std::vector<Tensor> grads(weight_grads.begin(), weight_grads.end());  // of what is combined
  for (std::size_t i = 0; i < recipes.size(); ++i)
    if (recipes[i].rule.resize) grads[i] = resized_back(recipes[i], grads[i]);
  dispatch(theta.device(), theta.dtype(), "generate_backward", [&]<class T>(auto& q) {
    Computed<T> computed(q, recipes, true);
    std::vector<kernels::GeneratedLayer<T>> layers;
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      const WeightRecipe& r = recipes[i];
      layers.push_back(layer_of<T>(r, computed.values[i]));
      layers.back().weight_grad = grads[i].template data<T>();
      if (computed.grads[i])
        layers.back().coefficients_grad = computed.grads[i].template data<T>();
      else if (r.coefficients && r.coefficients.wants_grad())
        layers.back().coefficients_grad = r.coefficients.grad_buffer().template data<T>();
    }
    const Tensor theta_grad = theta.wants_grad()
                                  ? theta.grad_buffer()
                                  : Tensor::zeros(theta.shape(), theta.dtype(), theta.device());
    const std::span<const kernels::GeneratedLayer<T>> list(layers);
    const Workspace scratch = workspace(q, list, theta.size(), theta.device());
    kernels::generate_backward(q, list, theta.size(), theta.value().data<T>(), theta_grad.data<T>(),
                               scratch.elements.data<T>(), scratch.plain.raw());
    computed.carry_back(q);
  });
}

Var generated_weight(const WeightRecipe& recipe) {
  check_recipe(recipe, "generated_weight");
  std::vector<Var> inputs{recipe.theta};
  for (const Var* v : {&recipe.coefficients, &recipe.projection, &recipe.projection_bias})
    if (*v) inputs.push_back(*v);
  const auto backward = [rule = recipe.rule, format = recipe.format](const Tensor& gy,
                                                                     std::span<const Var> in) {
    WeightRecipe r{.rule = rule, .theta = in[0], .format = format};
    if (in.size() > 1) r.coefficients = in[1];
    if (in.size() > 2) r.projection = in[2], r.projection_bias = in[3];
    generate_backward({&r, 1}, {&gy, 1});
  };
  const auto make = [recipe] { return generate({&recipe, 1})[0]; };
  const Var& theta = recipe.theta;
  return Var::regenerated(shape_in(recipe.format, recipe.rule.shape),
                          recipe.format.half ? DType::bf16 : theta.dtype(), theta.device(), make,
                          std::move(inputs), backward);
}

namespace {

void check_linear(const Var& x, const WeightRecipe& recipe, const Var& bias) {
  constexpr const char* kWhere = "generated_linear";
  check(!grad_enabled(), kWhere, "it has no gradient: use linear() where one is recorded");
  check_recipe(recipe, kWhere);
  const WeightRule& rule = recipe.rule;
  check(!rule.resize && std::ssize(rule.offsets) <= kernels::kFusedTemplates, kWhere,
        "the weight must be a sum of at most {} templates, or tiles, and not resized; found {} templates{}",
        kernels::kFusedTemplates, rule.offsets.size(), rule.resize ? ", resized" : "");
  check(x.shape().rank() == 2 && rule.shape.rank() == 2 && x.shape()[1] == rule.shape[1] &&
            rule.shape.size() < std::int64_t{1} << 32,
        kWhere, "the input is {}, the weight {}: expected (rows, i) and (o, i) of fewer than 2^32 elements",
        x.shape().text(), rule.shape.text());
  check_parameter(kWhere, x, recipe.theta, "theta");
  if (!bias) return;
  check(bias.shape() == Shape{rule.shape[0]}, kWhere, "the weight is {}, the bias {}: expected (o, i) and o",
        rule.shape.text(), bias.shape().text());
  check_parameter(kWhere, x, bias, "the bias");
}

}  // namespace

Var generated_linear(const Var& x, const WeightRecipe& recipe, const Var& bias) {
  check_linear(x, recipe, bias);
  const std::int64_t rows = x.shape()[0], in = x.shape()[1], out = recipe.rule.shape[0];
  count_multiply_adds(rows * in * out);
  const Tensor y = Tensor::empty({rows, out}, x.dtype(), x.device());
  if (y.size() == 0) return Var::constant(y);
  const std::size_t bytes = on_queue(x.device(), "generated_linear", [&](auto& q) {
    return x.dtype() == DType::f64   ? kernels::generated_linear_workspace<double>(q, rows, in, out)
           : x.dtype() == DType::f32 ? kernels::generated_linear_workspace<float>(q, rows, in, out)
                                     : kernels::generated_linear_workspace<bf16>(q, rows, in, out);
  });
  const Storage workspace = Storage::allocate(x.device(), bytes);
  dispatch_mixed(x.device(), x.dtype(), "generated_linear", [&]<class T>(auto& q) {
    using W = Wider<T>;
    const Computed<W> computed(q, {&recipe, 1}, false);
    kernels::generated_linear<T>(q,
                                 {rows, in, out, layer_of<W>(recipe, computed.values[0]), recipe.theta.size(),
                                  recipe.theta.value().template data<W>(), x.value().template data<T>(),
                                  bias ? bias.value().template data<W>() : nullptr, y.data<T>()},
                                 workspace.data());
  });
  return Var::constant(y);
}

}  // namespace ssn
