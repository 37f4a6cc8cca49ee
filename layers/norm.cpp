#include "layers/norm.h"

namespace ssn {

BatchNorm::BatchNorm(const Scope& scope, std::int64_t channels, const Options& options)
    : options_(options),
      gain_(scope.parameters.add(scope.name("gain"), {channels}, Section::ordinary, true,
                                 [gain = options.initial_gain](std::int64_t) { return gain; })),
      bias_(scope.parameters.add(scope.name("bias"), {channels}, Section::ordinary, true,
                                 [](std::int64_t) { return 0.0; })),
      running_mean_(scope.parameters.add_buffer(scope.name("running_mean"), {channels}, 0)),
      running_var_(scope.parameters.add_buffer(scope.name("running_var"), {channels}, 1)) {}

LayerNorm::LayerNorm(const Scope& scope, std::int64_t width, double eps)
    : gain_(scope.parameters.add(scope.name("gain"), {width}, Section::ordinary, false,
                                 [](std::int64_t) { return 1.0; })),
      bias_(scope.parameters.add(scope.name("bias"), {width}, Section::ordinary, false,
                                 [](std::int64_t) { return 0.0; })),
      eps_(eps) {}

}  // namespace ssn
