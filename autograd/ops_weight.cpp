#include "autograd/ops.h"
#include "kernels/generate.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

using Method = WeightRule::Method;

/// The masked tiles behind the first that cover n weights from N parameters.
std::int64_t masks_of(std::int64_t n, std::int64_t group_size) {
  return n > 0 ? (n + group_size - 1) / group_size - 1 : 0;
}

void check_recipe(const WeightRecipe& r, Where where) {
  const WeightRule& rule = r.rule;
  const Var &theta = r.theta, &coefficients = r.coefficients;
  const std::int64_t n = rule.shape.size();
  check(theta && theta.shape().rank() == 1 && (theta.size() > 0 || n == 0), where,
        "theta must be a vector of the group's parameters, and not empty");
  const std::int64_t size = theta.size();
  if (rule.method == Method::tiles) {
    check(rule.window >= 1, where, "the masks' window is {}; it must be positive", rule.window);
    const std::int64_t masks = masks_of(n, size);
    check(coefficients && coefficients.shape().rank() == 2 && coefficients.shape()[0] >= masks &&
              coefficients.shape()[1] == rule.window,
          where, "{} weights from {} parameters need masks of at least {}x{}, found {}", n, size, masks,
          rule.window, coefficients ? coefficients.shape().text() : "none");
  } else {
    for (std::int64_t o : rule.offsets)
      check(o >= 0 && o <= size - n, where,
            "a template of {} elements at {} leaves the group's {} parameters", n, o, size);
    const auto templates = static_cast<std::int64_t>(rule.offsets.size());
    if (rule.method == Method::exact)
      check(templates == 1 && !coefficients, where, "an exact weight has one offset and no coefficients");
    else
      check(templates > 0 && coefficients && coefficients.shape() == Shape{templates}, where,
            "{} templates need {} coefficients, found {}", templates, templates,
            coefficients ? coefficients.shape().text() : "none");
  }
  check(!coefficients || (coefficients.dtype() == theta.dtype() && coefficients.device() == theta.device()),
        where, "coefficients and theta must have one type and device");
}

void check_recipes(std::span<const WeightRecipe> recipes, Where where) {
  for (const auto& r : recipes) {
    check_recipe(r, where);
    check(r.theta.value().raw() == recipes[0].theta.value().raw(), where,
          "the layers of one call must share one group's theta");
  }
}

/// The kernels' view of a recipe. Gradients are those of the Vars that want one; buffers are owned by their
/// Vars, so that pointers stay valid.
template <class T>
kernels::GeneratedLayer<T> layer_of(const WeightRecipe& r) {
  using L = kernels::GeneratedLayer<T>;
  const WeightRule& rule = r.rule;
  const Var& coefficients = r.coefficients;
  L layer{};
  layer.method = rule.method == Method::tiles   ? L::Method::tiles
                 : rule.method == Method::exact ? L::Method::exact
                                                : L::Method::templates;
  layer.n = rule.shape.size();
  if (rule.method != Method::tiles) {
    layer.templates = static_cast<int>(rule.offsets.size());
    layer.offsets = rule.offsets.data();
  } else {
    layer.window = rule.window;
  }
  if (coefficients) layer.coefficients = coefficients.value().template data<T>();
  return layer;
}

Tensor exact_view(const WeightRecipe& r) {
  return r.theta.value().slice(r.rule.offsets[0], r.rule.shape);
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

}  // namespace

std::vector<Tensor> generate(std::span<const WeightRecipe> recipes) {
  check_recipes(recipes, "generate");
  std::vector<Tensor> weights;
  bool any = false;
  for (const auto& r : recipes) {
    const bool exact = r.rule.method == Method::exact;
    weights.push_back(exact ? exact_view(r) : Tensor::empty(r.rule.shape, r.theta.dtype(), r.theta.device()));
    any = any || (!exact && weights.back().size() > 0);
  }
  if (!any) return weights;
  const Var& theta = recipes[0].theta;
  dispatch(theta.device(), theta.dtype(), "generate", [&]<class T>(auto& q) {
    std::vector<kernels::GeneratedLayer<T>> layers;
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      if (recipes[i].rule.method == Method::exact) continue;
      layers.push_back(layer_of<T>(recipes[i]));
      layers.back().weight = weights[i].data<T>();
    }
    const std::span<const kernels::GeneratedLayer<T>> list(layers);
    const Workspace scratch = workspace(q, list, theta.size(), theta.device());
    kernels::generate_forward(q, list, theta.size(), theta.value().data<T>(), scratch.plain.raw());
  });
  return weights;
}

void generate_backward(std::span<const WeightRecipe> recipes, std::span<const Tensor> weight_grads) {
  check_recipes(recipes, "generate_backward");
  check(recipes.size() == weight_grads.size(), "generate_backward", "{} layers, {} gradients", recipes.size(),
        weight_grads.size());
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const WeightRecipe& r = recipes[i];
    check(weight_grads[i].shape() == r.rule.shape && weight_grads[i].dtype() == r.theta.dtype(),
          "generate_backward", "the weight is {} {}, its gradient {} {}", r.rule.shape.text(),
          name_of(r.theta.dtype()), weight_grads[i].shape().text(), name_of(weight_grads[i].dtype()));
  }
  if (recipes.empty() || recipes[0].theta.size() == 0) return;
  const Var& theta = recipes[0].theta;
  dispatch(theta.device(), theta.dtype(), "generate_backward", [&]<class T>(auto& q) {
    std::vector<kernels::GeneratedLayer<T>> layers;
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      const Var& coefficients = recipes[i].coefficients;
      layers.push_back(layer_of<T>(recipes[i]));
      layers.back().weight_grad = weight_grads[i].data<T>();
      if (coefficients.wants_grad()) layers.back().coefficients_grad = coefficients.grad_buffer().data<T>();
    }
    const Tensor theta_grad = theta.wants_grad()
                                  ? theta.grad_buffer()
                                  : Tensor::zeros(theta.shape(), theta.dtype(), theta.device());
    const std::span<const kernels::GeneratedLayer<T>> list(layers);
    const Workspace scratch = workspace(q, list, theta.size(), theta.device());
    kernels::generate_backward(q, list, theta.size(), theta.value().data<T>(), theta_grad.data<T>(),
                               scratch.elements.data<T>(), scratch.plain.raw());
  });
}

Var generated_weight(const WeightRecipe& recipe) {
  check_recipe(recipe, "generated_weight");
  const WeightRule& rule = recipe.rule;
  const Var &theta = recipe.theta, &coefficients = recipe.coefficients;
  std::vector<Var> inputs{theta};
  if (coefficients) inputs.push_back(coefficients);
  const auto backward = [rule](const Tensor& gy, std::span<const Var> in) {
    const WeightRecipe r{rule, in[0], in.size() > 1 ? in[1] : Var()};
    generate_backward({&r, 1}, {&gy, 1});
  };
  const auto make = [recipe] { return generate({&recipe, 1})[0]; };
  return Var::regenerated(rule.shape, theta.dtype(), theta.device(), make, std::move(inputs), backward);
}

}  // namespace ssn
