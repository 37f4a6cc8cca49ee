// Barriers and warp functions: who must wait, when a wait is over, and what CUDA leaves undefined and is an
// error here.
#include <bit>
#include <cstring>

#include "tests/cuda_on_host/block.h"
#include "tests/cuda_on_host/race_check.h"

namespace cuda_on_host {
namespace {

/// All live threads are at a barrier: it must be the same one, and none may have returned before.
void release_barrier() {
  Block& b = block();
  std::array<int, kMaxThreads> threads;
  int all = 0, yes = 0;
  for (int t = 0; t < b.size; ++t) {
    if (b.threads[t].state != Thread::at_barrier) continue;
    threads[all++] = t;
    yes += b.threads[t].predicate != 0;
    const Site first = b.threads[threads[0]].barrier, here = b.threads[t].barrier;
    if (!same_site(first, here)) {
      fail("divergent __syncthreads: thread {} is at {}, thread {} at {}", thread_text(threads[0]),
           site_text(first), thread_text(t), site_text(here));
    }
  }
  if (all < b.size) {
    fail("__syncthreads at {} reached by {} of {} threads; the others have returned",
         site_text(b.threads[threads[0]].barrier), all, b.size);
  }
  for (int t = 0; t < b.size; ++t) {
    *b.threads[t].vote = {yes, all};
    b.threads[t].state = Thread::ready;
  }
  b.at_barrier = 0;
  if (race_check) race_check->block_barrier();
  b.queue.push(std::span(threads.data(), all), false);
}

/// Checks that thread t and the other lanes of its call have made the same call. False if a lane waits for a
/// smaller group first; if that never completes, a deadlock is reported.
bool agree(int t, unsigned lanes) {
  Block& b = block();
  const WarpCall& mine = *b.threads[t].call;
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    const int u = b.warp_begin(t) + std::countr_zero(rest);
    const WarpCall& other = *b.threads[u].call;
    if (other.mask != mine.mask) return false;
    if (other.kind != mine.kind || !same_site(other.at, mine.at)) {
      fail("divergent warp function: thread {} is at {}, thread {} at {}", thread_text(t), site_text(mine.at),
           thread_text(u), site_text(other.at));
    }
  }
  const int born = std::min(32, b.size - b.warp_begin(t));
  if ((born == 32 ? mine.mask : mine.mask & ((1u << born) - 1)) != lanes) {
    fail("warp function at {}: its mask {:#010x} names lanes that have returned; {:#010x} are left",
         site_text(mine.at), mine.mask, lanes);
  }
  return true;
}

void exchange(int first, unsigned lanes) {
  Block& b = block();
  unsigned yes = 0;
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const WarpCall& call = *b.threads[first + lane].call;
    if (call.kind == WarpCall::vote && *static_cast<const int*>(call.in)) yes |= 1u << lane;
  }
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const WarpCall& call = *b.threads[first + lane].call;
    if (call.kind == WarpCall::vote) *static_cast<WarpVote*>(call.out) = {yes, lanes};
    if (call.kind != WarpCall::shuffle) continue;
    if (!(lanes >> call.source_lane & 1)) {
      fail("shuffle at {}: thread {} reads lane {}, which does not take part", site_text(call.at),
           thread_text(first + lane), call.source_lane);
    }
    std::memcpy(call.out, b.threads[first + call.source_lane].call->in, call.bytes);
  }
}

/// Completes the warp call of thread t if all its lanes have come.
void try_warp_call(int t) {
  Block& b = block();
  const int first = b.warp_begin(t), warp = t / 32;
  const WarpCall& call = *b.threads[t].call;
  const unsigned lanes = call.mask & b.unreturned[warp];
  if ((lanes & ~b.calling[warp]) || !agree(t, lanes)) return;
  exchange(first, lanes);
  if (call.kind == WarpCall::sync && race_check) race_check->warp_barrier(first, lanes);
  std::array<int, 32> threads;
  int count = 0;
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    threads[count] = first + std::countr_zero(rest);
    b.threads[threads[count++]].state = Thread::ready;
  }
  b.calling[warp] &= ~lanes;
  b.queue.push(std::span(threads.data(), count), true);  // a warp runs on before others, but in random order
}

}  // namespace

BlockVote wait_for_block(Site at, int predicate) {
  Block& b = block();
  BlockVote vote;
  Thread& self = b.threads[b.current];
  self.state = Thread::at_barrier;
  self.barrier = at;
  self.predicate = predicate;
  self.vote = &vote;
  if (++b.at_barrier == b.live) release_barrier();
  wait_for_others();
  return vote;
}

void wait_for_warp(WarpCall& call) {
  Block& b = block();
  if (!(call.mask >> lane() & 1))
    fail("warp function at {}: its mask {:#010x} lacks the caller", site_text(call.at), call.mask);
  Thread& self = b.threads[b.current];
  self.state = Thread::in_warp_call;
  self.call = &call;
  b.calling[b.current / 32] |= 1u << lane();
  try_warp_call(b.current);
  wait_for_others();
}

void leave_block(int t) {
  Block& b = block();
  const int warp = t / 32;
  b.threads[t].state = Thread::returned;
  --b.live;
  b.unreturned[warp] &= ~(1u << t % 32);
  for (unsigned rest = b.calling[warp]; rest; rest &= rest - 1) {
    const int u = b.warp_begin(t) + std::countr_zero(rest);
    if (b.threads[u].state == Thread::in_warp_call) try_warp_call(u);
  }
  if (b.live > 0 && b.at_barrier == b.live) release_barrier();
}

}  // namespace cuda_on_host
