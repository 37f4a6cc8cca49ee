#include "tests/cuda_on_host/run_queue.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace cuda_on_host {

Schedule& schedule() {
  static Schedule s = [] {
    const char *order = std::getenv("SSN_SCHEDULE"), *seed = std::getenv("SSN_SCHEDULE_SEED");
    const std::string_view name = order ? order : "";
    Schedule from_environment;
    if (name == "reverse") from_environment.order = Schedule::reverse;
    if (name == "random") from_environment.order = Schedule::random;
    if (seed) from_environment.seed = std::strtoull(seed, nullptr, 0);
    return from_environment;
  }();
  return s;
}

std::uint64_t ScheduleRandom::operator()() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
ScheduleRandom& schedule_random() {
  static ScheduleRandom random;
  return random;
}

namespace {

/// Single threads, or whole warps, in random order.
void shuffle_threads(std::span<int> threads) {
  auto& random = schedule_random();
  if (random.below(2)) {
    for (std::size_t i = threads.size(); i > 1; --i) std::swap(threads[i - 1], threads[random.below(i)]);
  } else {
    const std::uint64_t r = random();
    const auto key = [r](int t) { return (r ^ static_cast<unsigned>(t / 32)) * 0x9E3779B97F4A7C15ull; };
    std::stable_sort(threads.begin(), threads.end(), [&](int a, int b) { return key(a) < key(b); });
  }
}

}  // namespace

void RunQueue::start_block() {
  first_ = size_ = jumps_in_256_ = 0;
  if (schedule().order == Schedule::random)
    jumps_in_256_ = std::array{0u, 16u, 256u}[schedule_random().below(3)];
}

void RunQueue::push(std::span<int> threads, bool in_front) {
  if (schedule().order == Schedule::random) shuffle_threads(threads);
  if (schedule().order == Schedule::reverse) std::reverse(threads.begin(), threads.end());
  if (in_front) {
    for (auto t = threads.rbegin(); t != threads.rend(); ++t) ring_[--first_ & kMask] = *t;
  } else {
    for (std::size_t i = 0; i < threads.size(); ++i) ring_[(first_ + size_ + i) & kMask] = threads[i];
  }
  size_ += static_cast<unsigned>(threads.size());
}

int RunQueue::pop() {
  if (size_ == 0) return -1;
  auto& random = schedule_random();
  if (jumps_in_256_ && random.below(256) < jumps_in_256_) {
    std::swap(ring_[first_ & kMask], ring_[(first_ + random.below(size_)) & kMask]);
  }
  --size_;
  return ring_[first_++ & kMask];
}

}  // namespace cuda_on_host
