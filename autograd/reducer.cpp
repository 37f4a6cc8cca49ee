#include "autograd/reducer.h"

#include "runtime/trace.h"

namespace ssn {

void Reducer::start_stretch(std::size_t index) {
  started_.resize(parameters_.stretches().size());
  check(!started_[index], "reducer", "stretch {} of the gradient is summed twice in a step", index);
  started_[index] = true;
  const auto [first, size] = parameters_.stretches()[index];
  comm_.start_sum(parameters_.gradients().slice(first, Shape{size}));
}

void Reducer::start(int group) {
  const Span span("start sum");
  start_stretch(static_cast<std::size_t>(group));
}

void Reducer::finish() {
  const Span span("finish sum");
  started_.resize(parameters_.stretches().size());
  for (std::size_t i = 0; i < started_.size(); ++i) {
    if (!started_[i]) start_stretch(i);
  }
  comm_.wait_all();
  started_.clear();
}

}  // namespace ssn
