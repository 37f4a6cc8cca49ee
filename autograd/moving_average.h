#pragma once
#include <optional>
#include <vector>

#include "autograd/optimizer.h"

namespace ssn {

/// Exponential moving averages of all values and of the buffers (running statistics, which would not fit
/// averaged weights otherwise), as EfficientNet is evaluated with (Tan and Le 2019; Polyak and Juditsky
/// 1992). They start as the values do.
class MovingAverage {
 public:
  /// `parameters` is built; decay in (0, 1), anything else is a UsageError.
  MovingAverage(double decay, const Parameters& parameters);
  /// After the optimizer's step t, from 1: average += (1 − d) (value − average), d = min(decay, (1 + t) / (10
  /// + t)), so that the start values are soon forgotten (tf.train.ExponentialMovingAverage, num_updates). A
  /// step that has changed nothing does not count. Waits for nothing.
  void update(const Parameters& parameters, const Optimizer& optimizer);

  /// Laid out like Parameters::values(), and in the order of Parameters::buffers().
  const Tensor& values() const { return values_; }
  const std::vector<Tensor>& buffers() const { return buffers_; }

 private:
  double decay_;
  Tensor values_;
  std::vector<Tensor> buffers_;
};

/// While it lives, the parameters and buffers hold the averages; without `average` nothing changes.
class AverageInUse {
 public:
  AverageInUse(const std::optional<MovingAverage>& average, Parameters& parameters);
  ~AverageInUse();
  AverageInUse(const AverageInUse&) = delete;
  AverageInUse& operator=(const AverageInUse&) = delete;

 private:
  Parameters& parameters_;
  Tensor values_;  // its own, meanwhile
  std::vector<Tensor> buffers_;
};

}  // namespace ssn
