#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm.h"
#include "runtime/mpi_check.h"

namespace ssn {

/// What a rank tells of itself.
struct Pulse {
  std::uint64_t progress = 0;     // changes when the rank gets on
  std::uint64_t entered = 0;      // collective operations so far
  std::array<char, 24> inside{};  // the one it waits in; empty: it computes
  std::array<char, 24> busy{};    // what it does that may take long; empty: nothing
  bool last = false;              // nothing comes after it
};

/// What is known of a rank.
struct RankView {
  Pulse pulse;
  double silent = 0;  // seconds without a pulse
  double stuck = 0;   // seconds without progress
};

/// Why a run cannot go on, in one sentence that names the ranks; empty as long as it can. It cannot if for
/// `timeout` seconds
///   * a rank gives no pulse: it was stopped, died or was cut off;
///   * a rank makes no progress, and is not busy, while others wait for it;
///   * no rank makes progress and none is busy.
std::string hang_text(std::span<const RankView> ranks, double timeout);

/// A thread on every rank that ends the run when a rank hangs. Twice a second, each tells rank 0 its pulse
/// and hears from it. Rank 0 finds out who hangs, says so and ends all; without a word from rank 0, the
/// others do. Time in which the whole job was stopped does not count, for it has stopped this thread too.
/// What it cannot see: a rank that computes for ever and starts operation after operation while it does.
class Watchdog {
 public:
  /// Collective, as is the destructor; takes MPI calls from several threads.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// 0: it looks on for ever. Every rank's own; rank 0's decides.
  void set_timeout(double seconds);

  /// A collective operation of this rank, by the thread that does these. Operations within it are a part of
  /// it.
  class Operation {
   public:
    /// `watchdog` may be null; `name` is a literal.
    Operation(Watchdog* watchdog, const char* name);
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    Watchdog* watchdog_;
    const char* outer_ = nullptr;
  };

 private:
  /// Messages to and from another rank, one at a time each.
  struct Line {
    int rank = 0;
    Pulse sent, received;
    MPI_Request sending = MPI_REQUEST_NULL, receiving = MPI_REQUEST_NULL;
  };
  using Clock = std::chrono::steady_clock;

  void run();
  Pulse pulse() const;
  void exchange(Line& line, RankView& view);
  static void take(const Pulse& pulse, RankView& view);
  void judge(double timeout);
  void tell_of_the_busy(double timeout);
  void say_goodbye();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<const char*> inside_{nullptr};
  std::vector<Line> lines_;      // rank 0: to all others; else to rank 0
  std::vector<RankView> views_;  // of all ranks; on others than rank 0, of rank 0 and itself
  double patience_ = 0;          // with a rank that is busy, until it is told

  std::mutex mutex_;
  std::condition_variable changed_;
  double timeout_ = kHangTimeout;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all others
};

}  // namespace ssn
