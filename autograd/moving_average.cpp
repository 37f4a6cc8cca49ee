#include "autograd/moving_average.h"

#include "kernels/optimizer.h"
#include "runtime/dispatch.h"

namespace ssn {

MovingAverage::MovingAverage(double decay, const Parameters& parameters)
    : decay_(decay), values_(parameters.values().clone()) {
  check_usage(decay > 0 && decay < 1, "moving average", "its decay must be between 0 and 1, found {}", decay);
  for (const Parameters::Buffer& buffer : parameters.buffers()) buffers_.push_back(buffer.tensor.clone());
}

void MovingAverage::update(const Parameters& parameters, const Optimizer& optimizer) {
  dispatch(parameters.device(), parameters.dtype(), "moving average", [&]<class T>(auto& q) {
    const auto move = [&](const Tensor& x, const Tensor& average) {
      kernels::move_average(q, x.size(), decay_, optimizer.values(), x.template data<T>(),
                            average.template data<T>());
    };
    move(parameters.values(), values_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) move(parameters.buffers()[i].tensor, buffers_[i]);
  });
}

AverageInUse::AverageInUse(const std::optional<MovingAverage>& average, Parameters& parameters)
    : parameters_(parameters) {
  if (!average) return;
  values_ = parameters.values().clone();
  parameters.values().copy_from(average->values());
  for (std::size_t i = 0; i < average->buffers().size(); ++i) {
    const Tensor& buffer = parameters.buffers()[i].tensor;
    buffers_.push_back(buffer.clone());
    buffer.copy_from(average->buffers()[i]);
  }
  parameters.values_changed();
}

AverageInUse::~AverageInUse() {
  if (!values_) return;
  parameters_.values().copy_from(values_);
  for (std::size_t i = 0; i < buffers_.size(); ++i) parameters_.buffers()[i].tensor.copy_from(buffers_[i]);
  parameters_.values_changed();
}

}  // namespace ssn
