#pragma once
#include "layers/layer.h"

namespace ssn {

/// Drops at random while training, as (seed, step, the layer's name, place in the step's batch) say.
class Dropout {
 public:
  Dropout(const Scope& scope, double rate) : name_(scope.path), rate_(rate) {}
  /// Elements of x (Srivastava et al., 2014).
  Var operator()(const Var& x, const Pass& pass) const { return drop(x, pass, 1); }
  /// Whole samples, x being what a residual block adds (Huang et al., 2016: stochastic depth).
  Var samples(const Var& x, const Pass& pass) const { return drop(x, pass, x.size() / x.shape()[0]); }

 private:
  Var drop(const Var& x, const Pass& pass, std::int64_t unit) const {
    if (!pass.training || rate_ == 0) return x;
    return dropout(x, {.rate = rate_, .random = pass.random(name_), .first = pass.first, .unit = unit});
  }
  std::string name_;
  double rate_;
};

}  // namespace ssn
