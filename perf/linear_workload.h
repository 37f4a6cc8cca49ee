#pragma once
#include <algorithm>
#include <vector>

#include "autograd/fused_linear.h"
#include "runtime/random.h"

// A linear layer's forward pass with a generated weight, both ways, for bench_linear and bench_device.
namespace ssn {

/// Uniform in [-0.5, 0.5).
inline Tensor uniform_noise(const Shape& shape, Device device, DType dtype = DType::f32) {
  const Random random(1, static_cast<std::uint64_t>(shape.size()));
  const Tensor t = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < t.size(); ++i)
    t.data<float>()[i] = static_cast<float>(random.uniform(static_cast<std::uint64_t>(i))) - 0.5f;
  return t.to(dtype).to(device);
}

struct LinearSize {
  std::int64_t in, out;
  int templates;  // 0: tiles under masks, four to the weight
};

/// Layers of one size that take turns, so that their templates are not in the caches: in a network others
/// were used before.
class LinearWorkload {
 public:
  LinearWorkload(const LinearSize& size, const Var& theta) {
    const Shape shape{size.out, size.in};
    const std::int64_t n = shape.size(), tile = n / 4, stretch = std::max(size.templates, 1) * n;
    const Device device = theta.device();
    bias_ = Var::constant(uniform_noise({size.out}, device));
    const Var alpha = Var::constant(uniform_noise({std::max(size.templates, 1)}, device));
    const Var mask = Var::constant(uniform_noise({4, 9}, device));
    if (size.templates == 0) {
      // A tile begins its group, so each layer has a group of its own.
      for (std::int64_t at = 0; at + tile <= theta.size(); at += tile) {
        const Var group = Var::constant(theta.value().slice(at, {tile}));
        recipes_.push_back({{.method = WeightRule::Method::tiles, .shape = shape}, group, mask});
      }
      return;
    }
    for (std::int64_t at = 0; at + stretch <= theta.size(); at += stretch) {
      WeightRule rule{.method = WeightRule::Method::templates, .shape = shape};
      for (int k = 0; k < size.templates; ++k) rule.offsets.push_back(at + k * n);
      recipes_.push_back({rule, theta, alpha});
    }
  }
  const WeightRule& rule() const { return recipes_[0].rule; }
  /// As a layer does it.
  void generated_first(const Var& x) {
    WeightRecipe recipe = next();
    recipe.format = linear_format(x);
    linear(x, generated_weight(recipe), bias_);
  }
  void fused(const Var& x) { generated_linear(x, next(), bias_); }

 private:
  const WeightRecipe& next() { return recipes_[turn_++ % recipes_.size()]; }

  std::vector<WeightRecipe> recipes_;
  Var bias_;
  std::size_t turn_ = 0;
};

}  // namespace ssn
