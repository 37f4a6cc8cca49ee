#pragma once
#include <cstdint>
#include <vector>

namespace ssn {

/// The learning rate over a run, in epochs, so that it does not depend on the batch size.
struct ScheduleOptions {
  enum class Kind : std::uint8_t { constant, cosine, steps };
  Kind kind = Kind::cosine;
  double lr = 0.1;                 // after the warm-up
  double epochs = 1;               // length of the run: where cosine ends
  double warmup = 0;               // epochs in which the rate climbs linearly from 0 to lr
  double final_lr = 0;             // what cosine ends at
  std::vector<double> milestones;  // steps: at each of these epochs the rate is multiplied by `factor`
  double factor = 0.2;
};

/// Throws UsageError unless the options make sense.
void check_schedule(const ScheduleOptions& options);

/// The rate of step `step` (from 0), a function of its arguments alone. The warm-up's step i of w has the
/// rate lr · (i + 1) / w; the cosine starts behind it: final_lr + (lr − final_lr) · (1 + cos(π · t)) / 2, t
/// from 0 at its first step to 1 at the end of the run.
double learning_rate(const ScheduleOptions& options, std::int64_t step, std::int64_t steps_per_epoch);

}  // namespace ssn
