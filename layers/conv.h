#pragma once
#include "layers/layer.h"

namespace ssn {

/// Convolution over x (n, h, w, in) without bias: a norm follows.
class Conv2d {
 public:
  struct Options {
    std::int64_t kernel = 3, stride = 1, padding = 1, groups = 1;
  };
  Conv2d(const Scope& scope, std::int64_t in, std::int64_t out, const Options& options);
  Var operator()(const Var& x) const { return conv2d(x, weight_.use(), options_); }

 private:
  Weight weight_;
  ConvOptions options_;
};

}  // namespace ssn
