#pragma once
#include "autograd/var.h"

namespace ssn {

/// A network: its constructor asks a Scope for weights and parameters, forward() uses each weight once.
class Network {
 public:
  virtual ~Network() = default;
  /// x (n, h, w, c) → logits (n, classes). Training: batch statistics, running ones updated.
  virtual Var forward(const Var& x, bool training) const = 0;
};

}  // namespace ssn
