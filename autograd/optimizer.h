#pragma once
#include "autograd/parameters.h"

namespace ssn {

struct SgdOptions {
  double momentum = 0.9;  // in [0, 1)
  double decay = 5e-4;    // of the parameters that ask for it
  bool nesterov = true;
};

/// Stochastic gradient descent with momentum over all parameters at once (kernels/optimizer.h has the
/// formula). Does not zero the gradients.
class Sgd {
 public:
  /// `parameters` is built.
  Sgd(const Parameters& parameters, const SgdOptions& options);
  /// One step against parameters.gradients() at rate lr; the same parameters every time.
  void step(Parameters& parameters, double lr);

  const SgdOptions& options() const { return options_; }
  /// The momentum's state, laid out like parameters.values(): what a checkpoint has to keep.
  Tensor velocity() const { return velocity_; }

 private:
  SgdOptions options_;
  Tensor velocity_;
};

}  // namespace ssn
