#pragma once
#include "layers/layer.h"

namespace ssn {

/// Convolution over x (n, h, w, in), without bias where a norm follows.
class Conv2d {
 public:
  struct Options {
    std::int64_t kernel = 3, stride = 1, padding = 1, groups = 1;
    bool bias = false;  // starts at 0; else a norm follows
  };
  Conv2d(const Scope& scope, std::int64_t in, std::int64_t out, const Options& options);
  Var operator()(const Var& x) const {
    ConvOptions options = options_;
    const WeightFormat format = conv2d_format(x, weight_.shape(), options);
    options.channels_last = format.channels_last;
    const Var y = conv2d(x, weight_.use(format), options);
    return bias_ ? bias_add(y, bias_) : y;
  }

 private:
  Weight weight_;
  Var bias_;  // or none
  ConvOptions options_;
};

}  // namespace ssn
