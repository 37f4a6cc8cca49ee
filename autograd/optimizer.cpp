#include "autograd/optimizer.h"

#include "kernels/optimizer.h"
#include "runtime/dispatch.h"

namespace ssn {

Sgd::Sgd(const Parameters& parameters, const SgdOptions& options) : options_(options) {
  check_usage(options.momentum >= 0 && options.momentum < 1, "sgd",
              "the momentum must be in [0, 1), found {}", options.momentum);
  check_usage(options.decay >= 0, "sgd", "the weight decay must not be negative, found {}", options.decay);
  const Tensor values = parameters.values();
  check(static_cast<bool>(values), "sgd", "the parameters need build() first");
  velocity_ = Tensor::zeros(values.shape(), values.dtype(), values.device());
}

void Sgd::step(Parameters& parameters, double lr) {
  const Tensor theta = parameters.values(), g = parameters.gradients();
  check(theta.shape() == velocity_.shape(), "sgd", "made for {} parameters, called with {}", velocity_.size(),
        theta.size());
  dispatch(theta.device(), theta.dtype(), "sgd", [&]<class T>(auto& q) {
    for (const bool decays : {true, false}) {
      const kernels::SgdStep step{lr, options_.momentum, decays ? options_.decay : 0, options_.nesterov};
      for (const FlatRange& r : parameters.ranges(decays))
        kernels::sgd<T>(q, r.size, step, g.data<T>() + r.first, velocity_.data<T>() + r.first,
                        theta.data<T>() + r.first);
    }
  });
  parameters.values_changed();
}

}  // namespace ssn
