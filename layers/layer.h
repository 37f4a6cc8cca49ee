#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "autograd/ops.h"
#include "autograd/parameters.h"
#include "autograd/recompute.h"
#include "layers/weight.h"

namespace ssn {

/// One forward pass.
struct Pass {
  bool training = false;   // statistics of the batch, dropout
  std::uint64_t seed = 0;  // training: with the step, what dropout draws
  std::int64_t step = 0;
  /// `step` in the device's memory: work that is recorded once and replayed draws anew. None: `step` counts.
  const std::uint64_t* device_step = nullptr;
  std::int64_t first = 0;  // place of the first sample in the step: ranks together drop what one would
  bool half = false;       // activations, and weights where they meet them, in bf16; all else in f32
  /// Asked for each segment of the network by its name: whether to compute it again in backward, rather than
  /// to keep what is computed within. Empty: no.
  std::function<bool(std::string_view segment)> recompute = {};

  /// What the layer of this name draws in this step.
  Random random(std::string_view name) const {
    const std::uint64_t stream = Random::hash(name);
    return device_step != nullptr ? Random(seed, stream, device_step)
                                  : Random(seed, stream + static_cast<std::uint64_t>(step));
  }
  /// x of the type that activations have.
  Var activations(const Var& x) const { return half ? cast(x, DType::bf16) : x; }
  /// Images as a network's first layer reads them.
  Var input(const Tensor& images) const { return activations(Var::constant(images)); }
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

/// A part of a network, such as a block, that can be computed again in backward.
class Segment {
 public:
  explicit Segment(const Scope& scope) : name_(scope.path) {}
  /// f(inputs), whose result does not depend on whether it is recomputed. f outlives the call: it captures by
  /// value.
  template <class F>
  Var operator()(const Pass& pass, std::vector<Var> inputs, F&& f) const {
    if (pass.recompute && pass.recompute(name_)) return recomputed(std::move(inputs), std::forward<F>(f));
    return f(std::span<const Var>(inputs));
  }

 private:
  std::string name_;
};

}  // namespace ssn
