#include "runtime/binding.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/launcher.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {

/// Cores that a process may run on, 0 if unknown. Masks for more than 1024 cores need more room.
int cores_of(pid_t process) {
  for (int cores = 1024; cores <= 1 << 16; cores *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(cores);
    std::vector<cpu_set_t> mask(bytes / sizeof(cpu_set_t) + 1);
    if (sched_getaffinity(process, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
  }
  return 0;
}

}  // namespace

Placement find_placement(int local_ranks) {
  Placement p;
  p.allowed = cores_of(0);
  if (p.allowed == 0) p.allowed = std::max(1u, std::thread::hardware_concurrency());
  p.launched = launched_as_rank();
  p.node = std::max(p.allowed, p.launched ? cores_of(getppid()) : 0);
  p.local_ranks = std::max(1, local_ranks);
  // A list such as "4,2" is for nested loops: its first number counts.
  if (const char* threads = std::getenv("OMP_NUM_THREADS"))
    p.requested = std::clamp(std::atoi(threads), 0, kMostThreads);
  return p;
}

ThreadChoice choose_threads(const Placement& p) {
  const int share = std::max(1, p.node / p.local_ranks);
  const int wanted = p.requested > 0 ? p.requested : share;
  ThreadChoice choice{p.requested > 0 ? p.requested : std::min(share, p.allowed), ""};
  if (p.launched && p.allowed < wanted) {
    choice.warning = fmt::format(
        "this rank is bound to {} core{} and could use {}: start it with mpirun --bind-to none, or --map-by "
        "slot:PE={}",
        p.allowed, p.allowed == 1 ? "" : "s", wanted, wanted);
  }
  return choice;
}

}  // namespace ssn
