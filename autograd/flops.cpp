#include "autograd/flops.h"

namespace ssn {
namespace {
thread_local FlopCounter* t_counter = nullptr;
}

FlopCounter::FlopCounter() : outer_(t_counter) {
  t_counter = this;
}
FlopCounter::~FlopCounter() {
  t_counter = outer_;
}
void count_multiply_adds(std::int64_t number) {
  for (FlopCounter* c = t_counter; c != nullptr; c = c->outer_)
    c->flops_ += 2.0 * static_cast<double>(number);
}

}  // namespace ssn
