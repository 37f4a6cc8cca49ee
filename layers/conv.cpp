#include "layers/conv.h"

namespace ssn {

Conv2d::Conv2d(const Scope& scope, std::int64_t in, std::int64_t out, const Options& o)
    : weight_(scope.weights, {.name = scope.path,
                              .kind = WeightKind::convolution,
                              .shape = {out, in / o.groups, o.kernel, o.kernel},
                              .fan_in = in / o.groups * o.kernel * o.kernel,
                              .norm_follows = !o.bias}),
      options_{.stride = {o.stride, o.stride}, .padding = {o.padding, o.padding}, .groups = o.groups} {
  if (o.bias)
    bias_ = scope.parameters.add(scope.name("bias"), {out}, Section::ordinary, true,
                                 [](std::int64_t) { return 0.0; });
  check(in % o.groups == 0 && out % o.groups == 0, "conv2d",
        "{}: {} input and {} output channels do not divide into {} groups", scope.path, in, out, o.groups);
}

}  // namespace ssn
