#include "layers/linear.h"

namespace ssn {

Var WeightFactory::linear(int number, const Var& x, const Var& bias) {
  const Var weight = use(number, linear_format(x));
  return bias ? ssn::linear(x, weight, bias) : ssn::linear(x, weight);
}

Linear::Linear(const Scope& scope, std::int64_t in, std::int64_t out, const Options& o)
    : weight_(scope.weights, {.name = scope.path,
                              .kind = WeightKind::linear,
                              .shape = {out, in},
                              .fan_in = in,
                              .deviation = o.deviation}),
      bias_(scope.parameters.add(scope.name("bias"), {out}, Section::ordinary, o.decay_bias,
                                 [](std::int64_t) { return 0.0; })) {}

}  // namespace ssn
