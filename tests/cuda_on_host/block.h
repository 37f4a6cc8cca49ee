#pragma once
#include <fmt/format.h>

#include <array>
#include <functional>
#include <stdexcept>
#include <string>

#include "cuda_on_host/device.h"
#include "tests/cuda_on_host/fiber.h"
#include "tests/cuda_on_host/run_queue.h"

// The block that runs: its threads are fibers of one operating-system thread. A thread runs until it waits at
// a barrier or in a warp function; threads that never wait share one fiber.
namespace cuda_on_host {

struct Thread {
  enum State : std::uint8_t { fresh, ready, at_barrier, in_warp_call, returned } state;
  uint3 index;
  Fiber* fiber;
  WarpCall* call;  // in_warp_call
  Site barrier;    // at_barrier, and the two below
  int predicate;
  BlockVote* vote;
};

struct Block {
  std::array<Thread, kMaxThreads> threads{};
  int size = 0, live = 0, at_barrier = 0;
  int current = -1;  // the running thread
  bool running = false;
  std::array<unsigned, kMaxThreads / 32> unreturned{}, calling{};  // lanes of each warp
  RunQueue queue;
  const std::function<void()>* body = nullptr;
  Fiber launcher;  // the stack of the launching thread
  FiberPool fibers;
  std::string failure;  // not empty if a thread has failed

  Block();
  int warp_begin(int thread) const { return thread / 32 * 32; }
};
Block& block();

/// Runs the block blockIdx; returns what went wrong, empty if nothing.
std::string run_block();
/// The running thread waits, its state being set: others go on until it can.
void wait_for_others();
void make_running(int thread);
/// Lets a finished thread's warp and block go on without it.
void leave_block(int thread);

/// Ends the block, and the launch with this text. Thrown from the running thread's code up to the bottom of
/// its stack.
struct BlockFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <class... A>
[[noreturn]] void fail(fmt::format_string<A...> format, A&&... args) {
  throw BlockFailure(fmt::format(format, std::forward<A>(args)...));
}
void record_failure(const std::exception&);
/// Ends the block after record_failure, where nothing can be thrown through the caller.
[[noreturn]] void leave_failed_block();
/// "(x,y,z)" of a thread.
std::string thread_text(int thread);
std::string site_text(Site);
bool same_site(Site a, Site b);

}  // namespace cuda_on_host
