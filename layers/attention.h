#pragma once
#include "layers/layer.h"
#include "layers/linear.h"

namespace ssn {

/// Self-attention of several heads (Vaswani et al., 2017) on n samples of equal length, the rows of x
/// (n · length, width). Its four projections are layers of their own: query, key, value and output.
class SelfAttention {
 public:
  SelfAttention(const Scope& scope, std::int64_t width, std::int64_t heads, double dropout,
                const Linear::Options& projections);
  /// The same shape; what lies behind a sample's length takes no part. `pass.first` counts samples.
  Var operator()(const Var& x, const Tensor& lengths, const Pass& pass) const;

 private:
  std::string name_;
  std::int64_t heads_;
  double dropout_;  // of the probabilities, while training
  Linear query_, key_, value_, output_;
};

}  // namespace ssn
