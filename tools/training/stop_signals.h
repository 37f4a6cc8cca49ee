#pragma once
#include <array>
#include <csignal>

namespace ssn {

/// While it lives, the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP (unless that is ignored, as under nohup) is
/// noted for whoever asks, and the second one ends the program as usual. mpirun passes SIGUSR1 on to the
/// ranks, where it ends the job itself for the others. One within the life of another does nothing.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Since the outermost of those that live began.
  static bool arrived();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace ssn
