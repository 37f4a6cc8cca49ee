#include "layers/linear.h"

namespace ssn {

Linear::Linear(const Scope& scope, std::int64_t in, std::int64_t out, const Options& o)
    : weight_(scope.weights, {.name = scope.path,
                              .kind = WeightKind::linear,
                              .shape = {out, in},
                              .fan_in = in,
                              .deviation = o.deviation}),
      bias_(scope.parameters.add(scope.name("bias"), {out}, Section::ordinary, o.decay_bias,
                                 [](std::int64_t) { return 0.0; })) {}

}  // namespace ssn
