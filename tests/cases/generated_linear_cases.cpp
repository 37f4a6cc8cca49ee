#include <limits>
#include <utility>

#include "autograd/fused_linear.h"
#include "kernels/generated_linear.h"
#include "tests/op_case.h"

namespace ssn::test {
namespace {

using Method = WeightRule::Method;

struct Layer {
  std::string name;
  std::int64_t rows, in, out, group_size;
  WeightRule rule;
  bool coefficients = true, bias = true, half = false;

  Layer without_bias() const {
    Layer l = *this;
    l.name += "_no_bias", l.bias = false;
    return l;
  }
  Layer in_half() const {
    Layer l = *this;
    l.name += "_bf16", l.half = true;
    return l;
  }
  Layer with_rows(std::int64_t n) const {
    Layer l = *this;
    l.name += fmt::format("_{}_rows", n), l.rows = n;
    return l;
  }
  std::int64_t tile() const { return rule.tile ? rule.tile : group_size; }
  std::int64_t masks() const { return std::max<std::int64_t>(1, (in * out + tile() - 1) / tile() - 1); }
};

/// Templates `distance` apart, which may overlap.
Layer templates(std::int64_t rows, std::int64_t in, std::int64_t out, int count, std::int64_t distance = 0,
                std::int64_t first = 0) {
  const std::int64_t n = in * out;
  WeightRule rule{.method = Method::templates, .shape = {out, in}};
  for (int k = 0; k < count; ++k) rule.offsets.push_back(first + k * (distance ? distance : n));
  return {
      fmt::format("k{}_{}x{}x{}", count, rows, in, out), rows, in, out, rule.offsets.back() + n + 1, rule};
}
Layer exact(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t offset, double gain) {
  return {"exact",
          rows,
          in,
          out,
          offset + in * out,
          {.method = Method::exact, .shape = {out, in}, .offsets = {offset}, .gain = gain},
          false};
}
Layer tiles(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t group_size,
            std::int64_t window, std::int64_t tile = 0) {
  return {
      fmt::format("tiles_{}x{}x{}_of_{}", rows, in, out, tile ? tile : group_size), rows, in, out, group_size,
      {.method = Method::tiles, .shape = {out, in}, .window = window, .tile = tile}};
}
Layer changed(Layer l, std::string_view name, double gain, bool softmax = false) {
  l.name += fmt::format("_{}", name), l.rule.gain = gain, l.rule.softmax = softmax;
  return l;
}
Layer without_coefficients(Layer l) {
  l.name += "_no_coefficients", l.coefficients = false;
  return l;
}

/// What a sum of templates multiplies them by.
Doubles factors_of(const Layer& l, const Doubles& coefficients) {
  const std::size_t count = l.rule.offsets.size();
  if (!l.coefficients) return Doubles(count, 1 / static_cast<double>(count));
  Doubles f = coefficients;
  if (!l.rule.softmax) return f;
  double sum = 0;
  for (double& v : f) sum += v = std::exp(v);
  for (double& v : f) v /= sum;
  return f;
}

/// Element i of the weight, from its definition (kernels/generate.h).
double weight_at(const Layer& l, std::int64_t i, const Doubles& theta, const Doubles& coefficients,
                 const Doubles& factors) {
  if (l.rule.method == Method::tiles) {
    const std::int64_t t = i / l.tile(), p = i % l.tile();
    const auto place = static_cast<std::size_t>((t - 1) * l.rule.window + p % l.rule.window);
    return l.rule.gain * theta.at(static_cast<std::size_t>(p)) *
           (t && l.coefficients ? coefficients.at(place) : 1);
  }
  double sum = 0;
  for (std::size_t k = 0; k < factors.size(); ++k)
    sum += factors[k] * theta.at(static_cast<std::size_t>(l.rule.offsets[k] + i));
  return l.rule.gain * sum;
}

/// y from x, theta, the bias and the coefficients.
Doubles product(const Layer& l, std::span<const Doubles> in) {
  const Doubles factors = l.rule.method == Method::tiles ? Doubles() : factors_of(l, in[3]);
  Doubles w, y;
  for (std::int64_t i = 0; i < l.in * l.out; ++i) w.push_back(weight_at(l, i, in[1], in[3], factors));
  for (std::int64_t m = 0; m < l.rows; ++m)
    for (std::int64_t o = 0; o < l.out; ++o) {
      double sum = l.bias ? in[2].at(static_cast<std::size_t>(o)) : 0;
      for (std::int64_t k = 0; k < l.in; ++k)
        sum +=
            in[0].at(static_cast<std::size_t>(m * l.in + k)) * w.at(static_cast<std::size_t>(o * l.in + k));
      y.push_back(sum);
    }
  return y;
}

/// Theta that begins `offset` elements behind an allocation's begin. What the weight is not made of is NaN.
Var surrounded(const Layer& l, const Tensor& theta, std::int64_t offset) {
  const Tensor whole = Tensor::full({theta.size() + 16}, std::numeric_limits<double>::quiet_NaN(),
                                    theta.dtype(), theta.device());
  const Tensor part = whole.slice(offset, theta.shape());
  const std::int64_t n = l.in * l.out;
  if (l.rule.method == Method::tiles)
    part.slice(0, {std::min(l.tile(), n)}).copy_from(theta.slice(0, {std::min(l.tile(), n)}));
  for (const std::int64_t o : l.rule.offsets)
    if (n > 0) part.slice(o, {n}).copy_from(theta.slice(o, {n}));
  return Var::constant(part);
}

OpCase linear_case(const Layer& l, std::int64_t offset = 5) {
  const Shape coefficients =
      l.rule.method == Method::tiles ? Shape{l.masks(), l.rule.window} : Shape{std::ssize(l.rule.offsets)};
  return {.name = "generated_linear_" + l.name,
          .inputs = {{.shape = {l.rows, l.in}, .grad = false},
                     {.shape = {l.group_size}, .grad = false},
                     {.shape = {l.out}, .grad = false},
                     {.shape = coefficients, .grad = false}},
          .f =
              [=](std::span<const Var> v) {
                const NoGrad no_grad;
                WeightRecipe recipe{l.rule, surrounded(l, v[1].value(), offset)};
                if (l.coefficients) recipe.coefficients = v[3];
                const bool half = l.half && v[0].dtype() == DType::f32;
                const Var x = half ? cast(v[0], DType::bf16) : v[0];
                const Var y = generated_linear(x, recipe, l.bias ? v[2] : Var());
                return half ? cast(y, DType::f32) : y;
              },
          .reference = [=](std::span<const Doubles> v) { return product(l, v); },
          .f32_tolerance = l.half ? 0.01 : 2e-5};
}

}  // namespace

std::vector<OpCase> generated_linear_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Layer& l, std::int64_t offset = 5) { cases.push_back(linear_case(l, offset)); };
  for (const int k : {1, 2, 3, 8}) add(templates(3, 37, 19, k));
  add(templates(2, 33, 7, kernels::kFusedTemplates));
  for (const std::int64_t rows : {1, 2, 4, 5, 16, 17, 31, 33, 64, 65}) {
    add(templates(3, 37, 19, 3).with_rows(rows));
    add(templates(3, 64, 48, 2, 2048, 16).with_rows(rows).without_bias(), 8);
    add(templates(3, 40, 24, 3).with_rows(rows).in_half(), 8);
  }
  add(templates(3, 1, 1, 1));
  add(templates(3, 130, 5, 4, 7, 2));  // overlapping
  add(templates(2, 520, 18, 2));       // several slices
  add(templates(2, 1037, 7, 2), 8);    // more than a panel's depth
  add(templates(2, 1040, 9, 2).in_half(), 8);
  add(templates(3, 37, 19, 2).in_half().without_bias());
  add(changed(templates(3, 37, 19, 3), "gain", -0.7));
  add(changed(templates(3, 37, 19, 3), "softmax", 1.4, true));
  add(without_coefficients(templates(3, 37, 19, 3)));
  add(exact(6, 29, 13, 3, 1));
  add(changed(exact(6, 29, 13, 3, 1), "gain", 2.5));
  add(tiles(5, 29, 17, 61, 9));
  add(tiles(5, 64, 24, 256, 9), 8);
  add(tiles(5, 29, 17, 61, 1).with_rows(33));
  add(tiles(3, 7, 5, 1, 3));         // theta of one
  add(tiles(3, 41, 8, 97, 33, 90));  // a part of the group
  add(tiles(2, 523, 6, 331, 9));
  add(tiles(18, 40, 24, 128, 9).in_half(), 8);
  add(changed(tiles(5, 29, 17, 61, 9), "gain", 0.3).without_bias());
  add(without_coefficients(tiles(5, 29, 17, 61, 9)));
  add(templates(0, 5, 3, 2));
  add(templates(4, 5, 0, 2));
  add(templates(4, 0, 3, 2));
  return cases;
}

}  // namespace ssn::test
