#pragma once
#include "autograd/parameters.h"
#include "runtime/comm.h"

namespace ssn {

struct ReducerOptions {
  std::int64_t bucket = 1 << 20;  // bytes from which on a sum is started
  bool overlap = true;            // while backward goes on; else all at its end
};

/// Sums the flat gradient over the ranks. Groups that are complete and lie side by side are gathered in a
/// bucket, whose sum starts when it is large enough, while backward goes on; the rest follows at the end.
/// Every rank starts the same sums in the same order.
class Reducer {
 public:
  Reducer(Comm& comm, Parameters& parameters, const ReducerOptions& options = {})
      : comm_(comm), parameters_(parameters), options_(options) {}
  /// Group `group` is complete.
  void complete(int group);
  /// Starts what is left, and waits for all.
  void finish();

 private:
  enum class State : std::uint8_t { incomplete, complete, started };
  /// Stretches [first, end), which lie side by side.
  struct Bucket {
    std::size_t first, end;
  };

  bool adjacent(std::size_t index) const;
  Bucket bucket_around(std::size_t index) const;
  FlatRange range(Bucket bucket) const;
  void start(Bucket bucket);

  Comm& comm_;
  Parameters& parameters_;
  ReducerOptions options_;
  std::vector<State> states_;  // of the stretches, in a step
};

}  // namespace ssn
