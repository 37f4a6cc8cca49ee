#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace ssn {

/// Tells how training goes, on stderr. On a terminal one live line, at most ten times a second: epoch, step,
/// loss, samples/s, time left, cut to the terminal's width. Elsewhere only the line an epoch that a terminal
/// gets too. Off (nothing at all) when the log is quiet or the rank is not 0.
class Progress {
 public:
  /// `first_step`: the step a resumed run starts at. Both step numbers count from the run's first epoch.
  Progress(std::int64_t epochs, std::int64_t steps_per_epoch, std::int64_t first_step = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After a step: `samples` of all ranks together.
  void step(double loss, std::int64_t samples);
  /// After an epoch; `summary` is the epoch's metrics, as in "loss 0.43  error@1 2.3%".
  void end_epoch(const std::string& summary);

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_left() const;

  std::int64_t epochs_, steps_per_epoch_, first_step_, step_;
  std::int64_t samples_ = 0, epoch_samples_ = 0;
  bool on_, terminal_;
  Clock::time_point start_, epoch_start_, last_drawn_{};
};

/// "8 s", "3:07", "1:02:45".
std::string duration_text(double seconds);
/// "12,345".
std::string grouped(std::int64_t number);

}  // namespace ssn
