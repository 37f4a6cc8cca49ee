#include "tests/cuda_on_host/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/cuda_on_host/race_check.h"
#include "tests/cuda_on_host/shared_memory.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_on_host {
namespace {

/// Why no thread can go on: how many threads wait, and where.
[[noreturn]] void fail_deadlock() {
  Block& b = block();
  std::vector<std::pair<int, int>> groups;  // first thread, count
  const auto site = [&](int t) {
    return b.threads[t].state == Thread::at_barrier ? b.threads[t].barrier : b.threads[t].call->at;
  };
  for (int t = 0; t < b.size; ++t) {
    if (b.threads[t].state == Thread::returned) continue;
    auto same = [&](auto& g) {
      return b.threads[g.first].state == b.threads[t].state && same_site(site(g.first), site(t));
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end())
      groups.push_back({t, 1});
    else
      ++group->second;
  }
  std::string text = "deadlock, no thread can go on:";
  for (auto [t, count] : groups) {
    const std::string what = b.threads[t].state == Thread::at_barrier
                                 ? "__syncthreads"
                                 : fmt::format("a warp function with mask {:#010x}", b.threads[t].call->mask);
    text += fmt::format(" {} threads (the first: {}) wait at {} in {};", count, thread_text(t),
                        site_text(site(t)), what);
  }
  fail("{} {} of {} threads have returned", text, b.size - b.live, b.size);
}

/// Leaves `self` for the fiber of thread t.
void resume(Fiber& self, int t) {
  Block& b = block();
  make_running(t);
  Thread& thread = b.threads[t];
  if (thread.state == Thread::fresh) thread.fiber = b.fibers.take();
  if (thread.fiber != &self) switch_fiber(self, *thread.fiber);
}

/// Runs the current thread to its end; returns the thread to run next, −1 if all have returned.
int finish_thread() {
  Block& b = block();
  (*b.body)();
  leave_block(b.current);
  const int next = b.queue.pop();
  if (next < 0 && b.live > 0) fail_deadlock();
  return next;
}

/// Runs fresh threads one after the other until one waits; then other fibers run, until this one is resumed
/// or used again.
void fiber_main() {
  Block& b = block();
  for (;;) {
    Fiber* self = b.threads[b.current].fiber;
    int next = -1;
    try {
      next = finish_thread();
    } catch (const std::exception& e) {
      record_failure(e);
    }
    if (!b.failure.empty()) leave_failed_block();
    if (next >= 0 && b.threads[next].state == Thread::fresh) {
      make_running(next);
      b.threads[next].fiber = self;
      continue;
    }
    b.fibers.give(self);
    if (next >= 0)
      resume(*self, next);
    else
      switch_fiber(*self, b.launcher);
  }
}

}  // namespace

Block::Block() : fibers(fiber_main, kMaxThreads) {}
Block& block() {
  static Block& b = *new Block;
  return b;
}

void make_running(int thread) {
  block().current = thread;
  threadIdx = block().threads[thread].index;
}

void wait_for_others() {
  Block& b = block();
  const int self = b.current, next = b.queue.pop();
  if (next < 0) fail_deadlock();
  if (next != self) resume(*b.threads[self].fiber, next);
}

std::string run_block() {
  Block& b = block();
  fill_shared_memory();
  std::array<int, kMaxThreads> all;
  std::iota(all.begin(), all.end(), 0);
  for (int t = 0; t < b.size; ++t) b.threads[t].state = Thread::fresh;
  for (int t = 0; t < b.size; t += 32) {
    b.unreturned[t / 32] = b.size - t >= 32 ? ~0u : (1u << (b.size - t)) - 1;
    b.calling[t / 32] = 0;
  }
  b.live = b.size;
  b.at_barrier = 0;
  b.queue.start_block();
  b.queue.push(std::span(all.data(), b.size), false);
  if (race_check) race_check->block_starts();
  b.running = true;
  resume(b.launcher, b.queue.pop());
  b.running = false;
  if (b.failure.empty()) return {};
  b.fibers.reset();
  return std::exchange(b.failure, {});
}

void record_failure(const std::exception& e) {
  block().failure = fmt::format("{} [block ({},{},{}), thread {}]", e.what(), blockIdx.x, blockIdx.y,
                                blockIdx.z, thread_text(block().current));
}

void leave_failed_block() {
  Block& b = block();
  switch_fiber(*b.threads[b.current].fiber, b.launcher);
  std::abort();  // the fibers of a failed block are never resumed
}

std::string thread_text(int thread) {
  const uint3 i = block().threads[thread].index;
  return fmt::format("({},{},{})", i.x, i.y, i.z);
}
std::string site_text(Site at) {
  return fmt::format("{}:{}", at.file_name(), at.line());
}
bool same_site(Site a, Site b) {
  if (a.line() != b.line() || a.column() != b.column()) return false;
  return a.file_name() == b.file_name() || !std::strcmp(a.file_name(), b.file_name());
}

int lane() {
  return block().current % 32;
}

RaceCheck* race_check = nullptr;
void note_atomic(const void* at, std::size_t bytes, void* code) {
  if (race_check) race_check->atomic(at, bytes, code);
}

}  // namespace cuda_on_host

#ifdef __SANITIZE_ADDRESS__
/// AddressSanitizer calls this before its report.
extern "C" void __asan_on_error() {
  if (!cuda_on_host::block().running) return;
  std::fprintf(stderr, "cuda_on_host: in block (%u,%u,%u), thread (%u,%u,%u)\n", blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
}
#endif
