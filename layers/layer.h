#pragma once
#include <string>

#include "autograd/ops.h"
#include "autograd/parameters.h"
#include "layers/weight.h"

namespace ssn {

/// One forward pass.
struct Pass {
  bool training = false;   // statistics of the batch, dropout
  std::uint64_t seed = 0;  // training: with the step, what dropout draws
  std::int64_t step = 0;
  std::int64_t first = 0;  // place of the first sample in the step: ranks together drop what one would
};

/// Where a layer's constructor asks for its weights and parameters, and the path that its names start with.
struct Scope {
  WeightFactory& weights;
  Parameters& parameters;
  std::string path = {};

  /// "block1" within "net" is "net.block1".
  std::string name(std::string_view leaf) const {
    return path.empty() ? std::string(leaf) : fmt::format("{}.{}", path, leaf);
  }
  Scope at(std::string_view child) const { return {weights, parameters, name(child)}; }
};

}  // namespace ssn
