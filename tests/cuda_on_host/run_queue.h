#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "tests/cuda_on_host/schedules.h"

namespace cuda_on_host {

constexpr int kMaxThreads = 1024;  // of a block

/// splitmix64 from the schedule's seed.
class ScheduleRandom {
 public:
  void restart() { state_ = schedule().seed; }
  std::uint64_t operator()();
  std::uint64_t below(std::uint64_t n) { return (*this)() % n; }

 private:
  std::uint64_t state_ = 0;
};
ScheduleRandom& schedule_random();

/// The threads of a block that can run, in the order in which they will.
class RunQueue {
 public:
  /// Empties the queue. A random schedule chooses for each block how often another thread than the first runs
  /// next: never, sometimes or always.
  void start_block();
  /// Adds threads (ascending; reordered by the schedule) before or behind the others.
  void push(std::span<int> threads, bool in_front);
  /// The thread to run next; −1 if there is none.
  int pop();

 private:
  static constexpr unsigned kMask = 2 * kMaxThreads - 1;
  std::array<int, 2 * kMaxThreads> ring_{};
  unsigned first_ = 0, size_ = 0, jumps_in_256_ = 0;
};

}  // namespace cuda_on_host
