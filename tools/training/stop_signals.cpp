#include "tools/training/stop_signals.h"

namespace ssn {
namespace {
volatile std::sig_atomic_t g_signal = 0;
int g_alive = 0;
}  // namespace

StopSignals::StopSignals() {
  if (g_alive++ > 0) return;
  struct sigaction action {};
  action.sa_handler = [](int signal) { g_signal = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  g_signal = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &before_[i]);
    const bool nohup = kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN;
    if (nohup) sigaction(SIGHUP, &before_[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  if (--g_alive > 0) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopSignals::arrived() {
  return g_signal != 0;
}

}  // namespace ssn
