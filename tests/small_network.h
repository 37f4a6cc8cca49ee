#pragma once
#include <functional>
#include <optional>
#include <string>

#include "layers/conv.h"
#include "layers/linear.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "ssn/shared_weights.h"

// A network that is small enough for differences, with layers of four sizes.
namespace ssn::test {

struct NetworkSettings {
  WeightPolicy policy = WeightPolicy::eager;
  std::string budget = "150";
  PlanOptions plan = {.seed = 5};  // but for the budget
  DType dtype = DType::f32;
  bool with_spare = false;
};

/// Two convolutions, a third used twice, a classifier; sizes 108, 180, 225, 35. `spare` is asked for and
/// never used.
class SmallNetwork {
 public:
  explicit SmallNetwork(const NetworkSettings& s = {})
      : parameters(s.dtype), weights(parameters, options(s), s.policy) {
    const Scope scope{weights, parameters};
    conv1_.emplace(scope.at("conv1"), 3, 4, Conv2d::Options{});
    if (s.with_spare) spare_.emplace(scope.at("spare"), 2, 8, Conv2d::Options{});
    conv2_.emplace(scope.at("conv2"), 4, 5, Conv2d::Options{.stride = 2});
    conv3_.emplace(scope.at("conv3"), 5, 5, Conv2d::Options{});
    fc_.emplace(scope.at("fc"), 5, 7);
    weights.build();
    parameters.build();
  }

  /// What the classifier gives for batch `index`, (2, 7); `middle` stands between the convolutions.
  Var logits(int index, const std::function<Var(const Var&)>& middle = relu) const {
    const Random draws(9, static_cast<std::uint64_t>(index));
    std::vector<double> x(2 * 6 * 5 * 3);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = draws.normal(i);
    const Var image = Var::constant(Tensor::of<double>({2, 6, 5, 3}, x).to(parameters.dtype()));
    const Var h = middle((*conv2_)(relu((*conv1_)(image))));
    return (*fc_)(global_avg_pool((*conv3_)(relu((*conv3_)(h)))));
  }
  /// The loss of batch `index`.
  Var loss(int index, const std::function<Var(const Var&)>& middle = relu) const {
    const std::int32_t labels[] = {static_cast<std::int32_t>(index % 7), 3};
    return cross_entropy(logits(index, middle), Tensor::of<std::int32_t>({2}, labels), 0.1, 0.5);
  }

  void backward_of(int index) {
    backward(loss(index));
    weights.finish_backward();
  }
  /// theta −= rate · gradient
  void descend(double rate) {
    const auto step = [&]<class T>(T* theta, const T* g) {
      for (std::int64_t i = 0; i < parameters.values().size(); ++i) theta[i] -= static_cast<T>(rate) * g[i];
    };
    if (parameters.dtype() == DType::f64)
      step(parameters.values().data<double>(), parameters.gradients().data<double>());
    else
      step(parameters.values().data<float>(), parameters.gradients().data<float>());
    parameters.values_changed();
    parameters.zero_gradients();
  }

  Parameters parameters;
  SharedWeights weights;

 private:
  static PlanOptions options(const NetworkSettings& s) {
    PlanOptions o = s.plan;
    o.budget = Budget::parse(s.budget);
    return o;
  }

  std::optional<Conv2d> conv1_, spare_, conv2_, conv3_;
  std::optional<Linear> fc_;
};

/// Tiny work many times: threads would only wait for each other.
class OneThread {
 public:
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

}  // namespace ssn::test
