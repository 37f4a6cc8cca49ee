#pragma once
#include <optional>

#include "autograd/parameters.h"
#include "runtime/comm.h"

namespace ssn {

struct ReducerOptions {
  std::int64_t bucket = 1 << 20;  // bytes from which on sums are started
  bool overlap = true;            // while backward goes on; else all at its end
};

/// Sums the flat gradient over the ranks. What is complete is gathered in a bucket, whose sums, one for what
/// lies side by side, start when it is large enough, while backward goes on; the rest follows at the end.
/// Every rank starts the same sums in the same order.
class Reducer {
 public:
  Reducer(Comm& comm, Parameters& parameters, const ReducerOptions& options = {})
      : comm_(comm),
        parameters_(parameters),
        options_(options),
        not_finite_(Tensor::empty({1}, DType::i64, parameters.device())) {}
  /// Elements from which on a part of a group is worth completing before the rest of it.
  std::int64_t least_part() const;
  /// These elements of the gradient are complete. An Error if some were before, in this step.
  void complete(FlatRange range);
  /// Starts what is left, and has what is queued on a GPU from now on come after all. Ends what is recorded
  /// of a step (runtime/graph.h).
  void queue_rest();
  /// Waits for what was started or, where that was recorded, repeated.
  void wait();
  void finish() {
    queue_rest();
    wait();
  }
  /// Where this rank's gradient was not finite, before it was summed: the first such element of the flat
  /// buffer. Of the last step; waits for it.
  std::optional<std::int64_t> not_finite() const;
  /// On: does all but sum, for measuring what the rest takes. On every rank alike.
  void set_silent(bool on) { silent_ = on; }

 private:
  void start(FlatRange range);
  void look_at(FlatRange range);

  Comm& comm_;
  Parameters& parameters_;
  ReducerOptions options_;
  bool silent_ = false;
  RangeSet waiting_, started_;  // of what is complete, in a step
  Tensor not_finite_;           // i64, on the parameters' device: the first element, or their number
};

}  // namespace ssn
