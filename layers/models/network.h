#pragma once
#include <algorithm>
#include <cmath>

#include "autograd/var.h"

namespace ssn {

/// How much of a published network is built. Its constructor asks for every inner count of channels, the
/// stem's included, and for the blocks of every stage.
struct NetworkSize {
  double width = 1;  // of the channels
  int removed = 0;   // blocks of each stage; one stays

  std::int64_t channels(std::int64_t published) const {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(published) * width));
  }
  int blocks(int published) const { return std::max(1, published - removed); }
};

/// A network: its constructor asks a Scope for weights and parameters, forward() uses each weight once.
class Network {
 public:
  virtual ~Network() = default;
  /// x (n, h, w, c) → logits (n, classes). Training: batch statistics, running ones updated.
  virtual Var forward(const Var& x, bool training) const = 0;
};

}  // namespace ssn
