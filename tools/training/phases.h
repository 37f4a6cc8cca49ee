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

/// The steps of a recording, in their order: spans named "step" and what lies within.
std::vector<StepTimes> step_times(const Trace& trace);
/// Of steps that start the same sums: the medians.
SumSchedule sum_schedule(const Trace& trace);

}  // namespace ssn
