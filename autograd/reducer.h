#pragma once
#include "autograd/parameters.h"
#include "runtime/comm.h"

namespace ssn {

/// Sums the flat gradient over the ranks, a stretch at a time: a group's as soon as it is complete, while
/// backward goes on; all the rest at the end. Every rank starts the same stretches in the same order.
class Reducer {
 public:
  Reducer(Comm& comm, Parameters& parameters) : comm_(comm), parameters_(parameters) {}
  /// Starts the sum of group `group`.
  void start(int group);
  /// Starts what is left, and waits for all.
  void finish();

 private:
  void start_stretch(std::size_t index);

  Comm& comm_;
  Parameters& parameters_;
  std::vector<bool> started_;
};

}  // namespace ssn
