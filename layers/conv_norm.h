#pragma once
#include "layers/conv.h"
#include "layers/norm.h"

namespace ssn {

/// A convolution and the batch normalisation behind it, side by side in the scope.
class ConvNorm {
 public:
  ConvNorm(const Scope& scope, std::string_view conv, std::string_view bn, std::int64_t in, std::int64_t out,
           const Conv2d::Options& options, const BatchNorm::Options& norm)
      : conv_(scope.at(conv), in, out, options), bn_(scope.at(bn), out, norm) {}
  ConvNorm(const Scope& scope, std::string_view conv, std::string_view bn, std::int64_t in, std::int64_t out,
           const Conv2d::Options& options)
      : ConvNorm(scope, conv, bn, in, out, options, BatchNorm::Options()) {}
  Var operator()(const Var& x, const Pass& pass, Activation activation) const {
    return bn_(conv_(x), pass, activation);
  }

 private:
  Conv2d conv_;
  BatchNorm bn_;
};

}  // namespace ssn
