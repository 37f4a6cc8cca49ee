#pragma once
#include <cstdint>
#include <vector>

#include "runtime/names.h"

namespace ssn {

enum class ScheduleKind : std::uint8_t { cosine, linear, exponential, steps, constant };
template <>
struct Names<ScheduleKind> {
  static constexpr std::string_view what = "schedule",
                                    values[] = {"cosine", "linear", "exponential", "steps", "constant"};
};

/// The learning rate over a run, in epochs, so that it does not depend on the batch size.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 0.1;                 // after the warm-up
  double epochs = 1;               // length of the run: where cosine and linear end
  double warmup = 0;               // epochs in which the rate climbs linearly from 0 to lr
  double final_lr = 0;             // what cosine and linear end at
  std::vector<double> milestones;  // steps: at each of these epochs the rate is multiplied by `factor`
  double factor = 0.2;             // of steps and exponential
  double every = 0;                // exponential: epochs between falls; 0: continuously, `factor` an epoch
};

/// Throws UsageError unless the options make sense.
void check_schedule(const ScheduleOptions& options);

/// The rate of step `step` (from 0), a function of its arguments alone. The warm-up's step i of w has the
/// rate lr · (i + 1) / w. Behind it, with t from 0 at the first step to 1 at the end of the run,
///   cosine       final_lr + (lr − final_lr) · (1 + cos(π · t)) / 2
///   linear       final_lr + (lr − final_lr) · (1 − t)
/// and with e epochs passed since the run's beginning, warm-up included,
///   exponential  lr · factor^floor(e / every), or lr · factor^e; `every` is rounded to whole steps
///   steps        lr · factor^(number of milestones that e has reached)
double learning_rate(const ScheduleOptions& options, std::int64_t step, std::int64_t steps_per_epoch);

}  // namespace ssn
