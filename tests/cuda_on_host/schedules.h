#pragma once
#include <cstdint>

#include "runtime/flavour.h"

// The order in which the emulated threads and blocks of a kernel run. The environment sets what holds without
// every_schedule: SSN_SCHEDULE=forward (also without it), reverse or random, and SSN_SCHEDULE_SEED.
namespace cuda_on_host {

struct Schedule {
  enum Order { forward, reverse, random } order = forward;
  std::uint64_t seed = 1;  // the same seed gives the same random order
};
Schedule& schedule();

/// When the work on streams is done. Late: when something waits for it, directly or by an event, so that a
/// wait that is missing shows in the results. The environment's SSN_STREAMS=late sets it. Change it while
/// nothing is queued.
enum class Streams { prompt, late };
Streams& streams();

/// Calls f under schedules forward, reverse and `randoms` random ones; just once where kernels do not run on
/// the host. A result whose bits are the same in all of them does not depend on the order in which threads
/// run.
template <class F>
void every_schedule(F&& f, int randoms = 4) {
  if constexpr (ssn::build::cuda_on_host) {
    struct Restore {
      Schedule saved = schedule();
      ~Restore() { schedule() = saved; }
    } restore;
    for (int i = 0; i < randoms + 2; ++i) {
      const auto order = i == 0 ? Schedule::forward : i == 1 ? Schedule::reverse : Schedule::random;
      schedule() = {order, restore.saved.seed + static_cast<std::uint64_t>(i)};
      f();
    }
  } else {
    f();
  }
}

}  // namespace cuda_on_host
