#include "runtime/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "runtime/log.h"

namespace ssn {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::int64_t per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? std::llround(static_cast<double>(count) / seconds) : 0;
}

constexpr double kRedrawSeconds = 0.1;

}  // namespace

std::string duration_text(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

std::string grouped(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

Progress::Progress(std::int64_t epochs, std::int64_t steps_per_epoch, std::int64_t first_step)
    : epochs_(epochs),
      steps_per_epoch_(steps_per_epoch),
      first_step_(first_step),
      step_(first_step),
      on_(log_settings().rank == 0 && !log_settings().quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      epoch_start_(start_) {}

Progress::~Progress() {
  if (on_ && terminal_) set_live_line("");
}

double Progress::seconds_left() const {
  const std::int64_t done = step_ - first_step_;
  if (done == 0) return 0;
  return seconds_between(start_, Clock::now()) / static_cast<double>(done) *
         static_cast<double>(epochs_ * steps_per_epoch_ - step_);
}

void Progress::step(double loss, std::int64_t samples) {
  ++step_;
  samples_ += samples;
  epoch_samples_ += samples;
  const auto now = Clock::now();
  if (!on_ || !terminal_ || seconds_between(last_drawn_, now) < kRedrawSeconds) return;
  last_drawn_ = now;
  const std::int64_t within = (step_ - 1) % steps_per_epoch_ + 1;
  const std::string line =
      fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {} samples/s  {} left",
                  (step_ - 1) / steps_per_epoch_ + 1, epochs_, within, steps_per_epoch_, loss,
                  grouped(per_second(samples_, seconds_between(start_, now))), duration_text(seconds_left()));
  set_live_line(line.substr(0, terminal_width() - 1));  // a full line would wrap, and stay
}

void Progress::end_epoch(const std::string& summary) {
  const auto now = Clock::now();
  if (on_) {
    const double seconds = seconds_between(epoch_start_, now);
    if (terminal_) set_live_line("");
    info("epoch {}/{}  {}  {} samples/s  {:.1f} s  {} left", (step_ - 1) / steps_per_epoch_ + 1, epochs_,
         summary, grouped(per_second(epoch_samples_, seconds)), seconds, duration_text(seconds_left()));
  }
  epoch_start_ = now;
  epoch_samples_ = 0;
}

}  // namespace ssn
