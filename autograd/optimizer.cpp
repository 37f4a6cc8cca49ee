#include "autograd/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/dispatch.h"

namespace ssn {
namespace {

/// f<T>(queue, range, decay of the range) over all parameters.
template <class F>
void each_range(const Parameters& parameters, double decay, Where where, F&& f) {
  dispatch(parameters.device(), parameters.dtype(), where, [&]<class T>(auto& q) {
    for (const bool decays : {true, false})
      for (const FlatRange& range : parameters.ranges(decays))
        f.template operator()<T>(q, range, decays ? decay : 0.0);
  });
}

template <class T>
T* at(const Tensor& flat, const FlatRange& range) {
  return flat.data<T>() + range.first;
}

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, const Parameters& parameters) : Optimizer(options, parameters) {
    add_state("velocity", 0);
  }

 private:
  void update(Parameters& p) override {
    const OptimizerOptions& o = options();
    const Tensor& velocity = states()[0].values;
    each_range(p, o.decay, "sgd", [&]<class T>(auto& q, const FlatRange& r, double decay) {
      const kernels::SgdRates rates{decay, o.momentum, o.nesterov};
      kernels::sgd<T>(q, r.size, rates, values(), at<T>(p.gradients(), r), at<T>(velocity, r),
                      at<T>(p.values(), r));
    });
  }
};

class RmsProp : public Optimizer {
 public:
  RmsProp(const OptimizerOptions& options, const Parameters& parameters) : Optimizer(options, parameters) {
    add_state("mean_square", 1);
    add_state("velocity", 0);
  }

 private:
  void update(Parameters& p) override {
    const OptimizerOptions& o = options();
    const Tensor &square = states()[0].values, &velocity = states()[1].values;
    each_range(p, o.decay, "rmsprop", [&]<class T>(auto& q, const FlatRange& r, double decay) {
      const kernels::RmsPropRates rates{decay, o.beta2, o.epsilon, o.momentum};
      kernels::rmsprop<T>(q, r.size, rates, values(), at<T>(p.gradients(), r), at<T>(square, r),
                          at<T>(velocity, r), at<T>(p.values(), r));
    });
  }
};

class Adam : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, const Parameters& parameters) : Optimizer(options, parameters) {
    add_state("first_moment", 0);
    add_state("second_moment", 0);
  }

 protected:
  kernels::AdamRates rates(double decay) const {
    const OptimizerOptions& o = options();
    return {decay, o.beta1, o.beta2, o.epsilon, o.kind != OptimizerKind::adam};
  }

 private:
  void update(Parameters& p) override {
    const Tensor &m = states()[0].values, &v = states()[1].values;
    each_range(p, options().decay, "adam", [&]<class T>(auto& q, const FlatRange& r, double decay) {
      kernels::adam<T>(q, r.size, rates(decay), values(), at<T>(p.gradients(), r), at<T>(m, r), at<T>(v, r),
                       at<T>(p.values(), r));
    });
  }
};

/// A copy on `device` of what the kernels read as structures of 64-bit integers.
template <class S>
Tensor table(const std::vector<S>& rows, Device device) {
  static_assert(sizeof(S) % sizeof(std::int64_t) == 0);
  const Tensor host = Tensor::empty({std::ssize(rows), sizeof(S) / sizeof(std::int64_t)}, DType::i64);
  if (!rows.empty()) std::memcpy(host.raw(), rows.data(), host.bytes());
  return host.to(device);
}

/// The layers of its paper are the tensors here: a group that layers share is one of them.
class Lamb : public Adam {
 public:
  Lamb(const OptimizerOptions& options, const Parameters& parameters) : Adam(options, parameters) {
    std::vector<kernels::LambChunk> chunks;
    std::vector<std::int64_t> first_chunk = {0};
    for (const Parameters::Entry& entry : parameters.entries()) {
      const FlatRange& r = entry.range;
      for (std::int64_t from = 0; from < r.size; from += kernels::kLambChunk)
        chunks.push_back({r.first + from, std::min(kernels::kLambChunk, r.size - from),
                          std::ssize(first_chunk) - 1, entry.decay});
      first_chunk.push_back(std::ssize(chunks));
    }
    chunks_ = table(chunks, parameters.device());
    first_chunk_ = table(first_chunk, parameters.device());
    layout_ = {std::ssize(parameters.entries()), std::ssize(chunks), first_chunk_.data<std::int64_t>(),
               static_cast<const kernels::LambChunk*>(chunks_.raw())};
    workspace_ = Tensor::empty({kernels::lamb_workspace(layout_)}, DType::f64, parameters.device());
  }

 private:
  void update(Parameters& p) override {
    dispatch(p.device(), p.dtype(), "lamb", [&]<class T>(auto& q) {
      kernels::lamb<T>(q, layout_, rates(options().decay), values(), p.gradients().data<T>(),
                       states()[0].values.data<T>(), states()[1].values.data<T>(), p.values().data<T>(),
                       workspace_.data<double>());
    });
  }

  Tensor chunks_, first_chunk_, workspace_;
  kernels::LambLayout layout_{};
};

void check_options(const OptimizerOptions& o) {
  const auto proportion = [&](double value, const char* what) {
    check_usage(value >= 0 && value < 1, "optimizer", "the {} of {} must be in [0, 1), found {}", what,
                name_of(o.kind), value);
  };
  proportion(o.momentum, "momentum");
  proportion(o.beta1, "beta1");
  proportion(o.beta2, "beta2");
  constexpr double kLeast = std::numeric_limits<float>::min();  // less is 0 to the kernels
  check_usage(o.epsilon >= kLeast && std::isfinite(o.epsilon), "optimizer",
              "the epsilon of {} must be at least {:.2g}, found {}", name_of(o.kind), kLeast, o.epsilon);
  check_usage(o.decay >= 0 && std::isfinite(o.decay), "optimizer",
              "the weight decay must not be negative, found {}", o.decay);
}

}  // namespace

OptimizerOptions usual_options(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd: break;
    case OptimizerKind::adam: return {.kind = kind, .decay = 0};
    case OptimizerKind::adamw: return {.kind = kind, .decay = 0.01};
    case OptimizerKind::lamb: return {.kind = kind, .epsilon = 1e-6, .decay = 0.01};
    case OptimizerKind::rmsprop: return {.kind = kind, .beta2 = 0.9, .epsilon = 1e-3, .decay = 1e-5};
  }
  return {.kind = kind};
}

namespace {

/// *squares = Σ g² over all parameters.
void sum_squares(const Parameters& parameters, const Tensor& squares, const Tensor& workspace) {
  const Tensor g = parameters.gradients();
  dispatch(g.device(), g.dtype(), "norm", [&]<class T>(auto& q) {
    kernels::sum_of_squares(q, g.size(), g.data<T>(), squares.data<double>(), workspace.data<double>());
  });
}

Tensor doubles(std::int64_t count, Device device) {
  return Tensor::empty({count}, DType::f64, device);
}

constexpr std::int64_t kStepNumbers = sizeof(kernels::StepValues) / sizeof(double);

}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options, const Parameters& parameters)
    : options_(options),
      like_(parameters.values()),
      step_(doubles(kStepNumbers, like_.device())),
      squares_(doubles(1, like_.device())),
      workspace_(doubles(kernels::squares_workspace(like_.size()), like_.device())) {}

void Optimizer::add_state(std::string name, double value) {
  states_.push_back({std::move(name), Tensor::full(like_.shape(), value, like_.dtype(), like_.device())});
}

void Optimizer::begin_step(double lr, double scale) {
  const auto t = static_cast<double>(++steps_);
  const auto correction = [&](double beta) { return 1 / (1 - std::pow(beta, t)); };
  const kernels::StepValues numbers{t, lr, scale, correction(options_.beta1), correction(options_.beta2), 0};
  if (dry_run()) return;
  on_queue(like_.device(), "optimizer",
           [&](auto& q) { kernels::set_step(q, numbers, static_cast<kernels::StepValues*>(step_.raw())); });
}

void Optimizer::apply(Parameters& parameters, const StepGuard& guard) {
  check(parameters.values().shape() == like_.shape(), "optimizer", "made for {} parameters, called with {}",
        like_.size(), parameters.values().size());
  if ((guard.clip > 0 || guard.finite) && !dry_run()) {
    sum_squares(parameters, squares_, workspace_);
    on_queue(like_.device(), "clip", [&](auto& q) {
      kernels::clip(q, guard.clip, squares_.data<double>(), static_cast<kernels::StepValues*>(step_.raw()));
    });
  }
  update(parameters);
  parameters.values_changed();
}

double Optimizer::norm() const {
  const Tensor host = step_.to(Device::cpu);
  return static_cast<const kernels::StepValues*>(host.raw())->norm;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const Parameters& parameters) {
  check_options(options);
  check(static_cast<bool>(parameters.values()), "optimizer", "the parameters need build() first");
  switch (options.kind) {
    case OptimizerKind::sgd: break;
    case OptimizerKind::adam:
    case OptimizerKind::adamw: return std::make_unique<Adam>(options, parameters);
    case OptimizerKind::lamb: return std::make_unique<Lamb>(options, parameters);
    case OptimizerKind::rmsprop: return std::make_unique<RmsProp>(options, parameters);
  }
  return std::make_unique<Sgd>(options, parameters);
}

double gradient_norm(const Parameters& parameters) {
  const Tensor squares = doubles(1, parameters.device());
  sum_squares(parameters, squares,
              doubles(kernels::squares_workspace(parameters.gradients().size()), parameters.device()));
  return std::sqrt(*squares.to(Device::cpu).data<double>());
}

}  // namespace ssn
