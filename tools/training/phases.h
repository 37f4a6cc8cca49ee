#pragma once
#include <array>
#include <vector>

#include "runtime/trace.h"

namespace ssn {

/// What a rank does with the time of a step. `reduce` is what the step waits for or does itself of the sum
/// over the ranks; `hidden` the part of it that another thread does meanwhile, which is not in the sum.
enum class Phase : std::uint8_t { data, generate, forward, backward, reduce, optimizer, other, hidden };
inline constexpr std::array kPhaseNames = {"data",   "generate",  "forward", "backward",
                                           "reduce", "optimizer", "other",   "reduce hidden"};

/// Seconds of one step of one rank.
struct StepTimes {
  double step = 0;
  std::array<double, kPhaseNames.size()> phases{};

  double& operator[](Phase phase) { return phases[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
};

/// A sum over the ranks, as a step starts it.
struct SumStart {
  double after = 0;        // seconds of the step's own work before it: without what it waits for sums
  std::int64_t bytes = 0;  // this rank's
};
/// What decides how a network's speed changes a step.
struct SumSchedule {
  std::vector<SumStart> sums;  // in their order
  double backward_end = 0;     // seconds of work until the step waits for the sums
  double tail = 0;             // and after that
};

/// When, on the trace's clock, some bytes of a group's gradient are complete.
struct Completed {
  int group = 0;
  std::int64_t bytes = 0;
  std::int64_t at = 0;
};
/// The same as a share of the time of backward.
struct GroupCompletion {
  int group = 0;
  std::int64_t bytes = 0;
  double share = 0;
};

/// Of the last step of a recording, in their order.
std::vector<GroupCompletion> group_completions(const Trace& trace, const std::vector<Completed>& all);
/// The share of backward after which this share of all bytes is complete.
double complete_after(const std::vector<GroupCompletion>& completions, double share_of_bytes);

/// The steps of a recording, in their order: spans named "step" and what lies within.
std::vector<StepTimes> step_times(const Trace& trace);
/// Of steps that start the same sums: the medians.
SumSchedule sum_schedule(const Trace& trace);

}  // namespace ssn
