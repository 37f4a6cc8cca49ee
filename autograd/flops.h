#pragma once
#include <cstdint>

namespace ssn {

/// While one lives, convolutions and matrix products of this thread add to it what they take, in forward and
/// backward: a multiplication and an addition are two FLOPs.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;
  double flops() const { return flops_; }

 private:
  double flops_ = 0;
  FlopCounter* outer_;
  friend void count_multiply_adds(std::int64_t);
};

/// For operations: adds to this thread's counter, if there is one.
void count_multiply_adds(std::int64_t number);

}  // namespace ssn
