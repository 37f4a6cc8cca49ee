#include "ssn/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "runtime/liveness.h"
#include "runtime/parallel.h"
#include "runtime/trace.h"

namespace ssn {
namespace {

constexpr std::int64_t kChunk = 1 << 14;

/// Σ f(i) for i < n, over fixed chunks.
template <class F>
double sum_over(std::int64_t n, F&& f) {
  std::vector<double> sums(static_cast<std::size_t>((n + kChunk - 1) / kChunk));
  parallel_chunks(n, kChunk, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += f(i);
    sums[static_cast<std::size_t>(chunk)] = sum;
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

double squares(const Tensor& tensor) {
  const float* x = tensor.data<float>();
  return sum_over(tensor.size(), [x](std::int64_t i) { return double{x[i]} * x[i]; });
}

/// y += factor · (x − offset)
void add_scaled(const Tensor& y, double factor, const Tensor& x, const Tensor& offset = {}) {
  float* to = y.data<float>();
  const float *from = x.data<float>(), *less = offset ? offset.data<float>() : nullptr;
  parallel_for(y.size(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      to[i] += static_cast<float>(factor) * (less ? from[i] - less[i] : from[i]);
  });
}

/// What is solved for at a time: of each layer the parameter that its weight depends on, none for a layer
/// that does not take part.
using Unknowns = std::vector<const Parameters::Entry*>;

class Fit {
 public:
  Fit(SharedWeights& weights, Parameters& parameters, std::span<const Tensor> targets);
  Unknowns groups() const;
  Unknowns coefficients() const;
  void solve(const Unknowns& unknowns, int steps);
  std::vector<double> errors();

 private:
  /// An unknown's state in the iteration: x is the solution so far, p the direction.
  struct State {
    Tensor x, p;
    double norm = 0, first_norm = 0;  // |s|², of s = Aᵀ r
    double moved = 0;                 // |A p|²
    bool done = false;
  };
  using States = std::map<const Parameters::Entry*, State>;
  std::vector<Var> generated(const Unknowns& unknowns);
  std::vector<Tensor> constant_parts(const Unknowns& unknowns);
  Tensor gradient_of(const Parameters::Entry& entry) const;
  void carry_back(const Unknowns& unknowns, const std::vector<Var>& weights);
  void step(const Unknowns& unknowns, const std::vector<Tensor>& offsets, States& states);

  SharedWeights& weights_;
  Parameters& parameters_;
  std::span<const Tensor> targets_;
  std::vector<double> importance_;  // of each layer in its group's sum; one of a group has 1
  std::vector<Tensor> residuals_;   // target − weight
};

Fit::Fit(SharedWeights& weights, Parameters& parameters, std::span<const Tensor> targets)
    : weights_(weights), parameters_(parameters), targets_(targets) {
  const Plan& plan = weights.plan();
  check(targets.size() == plan.layers.size(), "fit", "{} targets for {} layers", targets.size(),
        plan.layers.size());
  std::vector<double> largest(plan.groups.size(), 0), norms;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    check(targets[i].shape() == plan.layers[i].shape, "fit", "the target of {} is {}, expected {}",
          plan.layers[i].name, targets[i].shape().text(), plan.layers[i].shape.text());
    norms.push_back(squares(targets[i]));
    largest[plan.layers[i].group] = std::max(largest[plan.layers[i].group], norms.back());
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    importance_.push_back(norms[i] > 0 ? largest[plan.layers[i].group] / norms[i] : 1);
}

Unknowns Fit::groups() const {
  Unknowns unknowns;
  for (const PlannedLayer& layer : weights_.plan().layers)
    unknowns.push_back(&parameters_.entry(fmt::format("group{}", layer.group)));
  return unknowns;
}

Unknowns Fit::coefficients() const {
  const Plan& plan = weights_.plan();
  std::map<std::string, const Parameters::Entry*> entries;
  for (const Parameters::Entry& entry : parameters_.entries()) entries[entry.name] = &entry;
  const auto find = [&](const std::string& name) {
    const auto it = entries.find(name);
    return it == entries.end() ? nullptr : it->second;
  };
  Unknowns unknowns;
  for (const PlannedLayer& layer : plan.layers) {
    const Parameters::Entry* entry = nullptr;
    if (layer.tiles > 1) {
      const bool own = plan.options.masks == MaskScope::layer;
      entry = find((own ? layer.name : fmt::format("group{}", layer.group)) + ".mask");
    } else if (layer.method == Method::templates && !plan.options.softmax) {
      entry = find(layer.name + (plan.options.combine == Combine::emb ? ".phi" : ".alpha"));
    }
    unknowns.push_back(entry);
  }
  return unknowns;
}

/// The layers that take part, at the present values; null for the others.
std::vector<Var> Fit::generated(const Unknowns& unknowns) {
  parameters_.values_changed();
  std::vector<Var> weights(unknowns.size());
  for (std::size_t i = 0; i < unknowns.size(); ++i)
    if (unknowns[i]) weights[i] = weights_.use(static_cast<int>(i));
  return weights;
}

/// The layers' weights where the unknowns are zero, which they are set to; empty if that is zero too.
std::vector<Tensor> Fit::constant_parts(const Unknowns& unknowns) {
  for (const Parameters::Entry* entry : unknowns)
    if (entry) entry->leaf.value().fill(0);
  std::vector<Tensor> parts(unknowns.size());
  const NoGrad no_grad;
  const std::vector<Var> weights = generated(unknowns);
  for (std::size_t i = 0; i < unknowns.size(); ++i)
    if (unknowns[i] && unknowns[i]->section != Section::group) parts[i] = weights[i].value().clone();
  return parts;
}

Tensor Fit::gradient_of(const Parameters::Entry& entry) const {
  return parameters_.gradients().slice(entry.range.first, Shape{entry.range.size});
}

/// The gradients become Aᵀ of the residuals.
void Fit::carry_back(const Unknowns& unknowns, const std::vector<Var>& weights) {
  parameters_.zero_gradients();
  std::vector<Var> outputs;
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < unknowns.size(); ++i) {
    if (!unknowns[i]) continue;
    outputs.push_back(weights[i]);
    seeds.push_back(Tensor::zeros(targets_[i].shape(), DType::f32));
    add_scaled(seeds.back(), importance_[i], residuals_[i]);
  }
  backward(outputs, seeds);
  weights_.finish_backward();
}

void Fit::step(const Unknowns& unknowns, const std::vector<Tensor>& offsets, States& states) {
  for (auto& [entry, state] : states) {
    entry->leaf.value().copy_from(state.p.view(entry->shape));
    state.moved = 0;
  }
  const std::vector<Var> moved = generated(unknowns);
  for (std::size_t i = 0; i < unknowns.size(); ++i) {
    if (!unknowns[i]) continue;
    const Tensor w = moved[i].value();
    const float *x = w.data<float>(), *less = offsets[i] ? offsets[i].data<float>() : nullptr;
    states[unknowns[i]].moved += importance_[i] * sum_over(w.size(), [&](std::int64_t k) {
                                   const double d = double{x[k]} - (less ? less[k] : 0);
                                   return d * d;
                                 });
  }
  const auto length = [](const State& s) { return s.done || s.moved <= 0 ? 0 : s.norm / s.moved; };
  for (std::size_t i = 0; i < unknowns.size(); ++i)
    if (unknowns[i]) add_scaled(residuals_[i], -length(states[unknowns[i]]), moved[i].value(), offsets[i]);
  for (auto& [entry, state] : states) add_scaled(state.x, length(state), state.p);

  carry_back(unknowns, moved);
  constexpr double kConverged = 1e-14;
  for (auto& [entry, state] : states) {
    const Tensor s = gradient_of(*entry);
    const double norm = squares(s), beta = state.norm > 0 ? norm / state.norm : 0;
    state.done = state.done || state.moved <= 0 || norm <= kConverged * state.first_norm;
    state.norm = norm;
    const Tensor direction = s.clone();
    if (!state.done) add_scaled(direction, beta, state.p);
    if (state.done) direction.fill(0);
    state.p = direction;
  }
}

void Fit::solve(const Unknowns& unknowns, int steps) {
  States states;
  const std::vector<Var> now = generated(unknowns);
  residuals_.assign(unknowns.size(), {});
  for (std::size_t i = 0; i < unknowns.size(); ++i) {
    if (!unknowns[i]) continue;
    residuals_[i] = targets_[i].clone();
    add_scaled(residuals_[i], -1, now[i].value());
  }
  carry_back(unknowns, now);
  for (const Parameters::Entry* entry : unknowns) {
    if (!entry || states.contains(entry)) continue;
    const Tensor s = gradient_of(*entry).clone();
    const double norm = squares(s);
    states[entry] = {entry->leaf.value().clone().view(s.shape()), s, norm, norm, 0, norm == 0};
  }
  const std::vector<Tensor> offsets = constant_parts(unknowns);
  const auto done = [](const auto& state) { return state.second.done; };
  for (int i = 0; i < steps && !std::ranges::all_of(states, done); ++i) step(unknowns, offsets, states);
  for (auto& [entry, state] : states) entry->leaf.value().copy_from(state.x.view(entry->shape));
  parameters_.values_changed();
}

std::vector<double> Fit::errors() {
  const NoGrad no_grad;
  std::vector<double> errors;
  parameters_.values_changed();
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Tensor difference = targets_[i].clone();
    add_scaled(difference, -1, weights_.use(static_cast<int>(i)).value());
    const double whole = squares(targets_[i]);
    errors.push_back(std::sqrt(squares(difference) / (whole > 0 ? whole : 1)));
  }
  return errors;
}

double sum_of_squares(const std::vector<double>& errors) {
  double sum = 0;
  for (const double e : errors) sum += e * e;
  return sum;
}

}  // namespace

std::vector<double> fit_weights(SharedWeights& weights, Parameters& parameters,
                                std::span<const Tensor> targets, const FitOptions& options) {
  const Busy busy("fits shared parameters to weights");
  const Span span("fit");
  Fit fit(weights, parameters, targets);
  const Unknowns groups = fit.groups(), coefficients = fit.coefficients();
  // From zero, so that what a layer has of its own becomes the target to the bit.
  for (const Parameters::Entry* group : groups) group->leaf.value().fill(0);
  fit.solve(groups, options.first_steps);
  std::vector<double> errors = fit.errors();
  if (std::ranges::all_of(coefficients, [](const auto* entry) { return entry == nullptr; })) return errors;
  for (int round = 0; round < options.rounds; ++round) {
    const double before = sum_of_squares(errors);
    fit.solve(coefficients, options.steps);
    fit.solve(groups, options.steps);
    errors = fit.errors();
    if (sum_of_squares(errors) > (1 - options.enough) * before) break;
  }
  return errors;
}

}  // namespace ssn
