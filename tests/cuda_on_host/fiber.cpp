#include "tests/cuda_on_host/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef CUDA_ON_HOST_UCONTEXT
// The registers that a call must preserve (System V ABI) are on the stack of a suspended fiber.
extern "C" void cuda_on_host_switch(void** save_stack_pointer, void* load_stack_pointer);
asm(R"(
.text
.globl cuda_on_host_switch
.type cuda_on_host_switch,@function
cuda_on_host_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size cuda_on_host_switch,.-cuda_on_host_switch
.section .note.GNU-stack,"",@progbits
.text
)");
#endif

namespace cuda_on_host {
namespace {

constexpr std::size_t kPage = 4096;
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kStack = 256 << 10;
#else
constexpr std::size_t kStack = 64 << 10;
#endif

Fiber* g_suspended = nullptr;  // the fiber that was left last
void (*g_entry)() = nullptr;

/// The first thing to do on a fiber that has been switched to.
void arrive([[maybe_unused]] void* fake_stack) {
#ifdef __SANITIZE_ADDRESS__
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &stack, &bytes);
  g_suspended->stack = static_cast<char*>(const_cast<void*>(stack));  // news for a thread's own stack only
  g_suspended->bytes = bytes;
#endif
}

void begin() {
  arrive(nullptr);
  g_entry();
}

void prepare(Fiber& fiber) {
#ifndef CUDA_ON_HOST_UCONTEXT
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.bytes) - 2;
  *--top = nullptr;  // return address of begin: ends backtraces
  *--top = reinterpret_cast<void*>(begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // the saved registers
  fiber.stack_pointer = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = fiber.bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, begin, 0);
#endif
}

}  // namespace

void switch_fiber(Fiber& from, Fiber& to) {
  g_suspended = &from;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.bytes);
#endif
#ifndef CUDA_ON_HOST_UCONTEXT
  cuda_on_host_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.context, &to.context);
#endif
  arrive(from.fake_stack);
}

std::size_t FiberPool::arena_bytes() const {
  return arena_ ? most_ * (kPage + kStack) : 0;
}

Fiber* FiberPool::take() {
  if (!idle_.empty()) {
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  if (!arena_) {
    void* p = mmap(nullptr, most_ * (kPage + kStack), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      std::perror("cuda_on_host: no memory for the stacks of a block's threads");
      std::abort();
    }
    arena_ = static_cast<char*>(p);
    g_entry = entry_;
  }
  char* lowest = arena_ + all_.size() * (kPage + kStack);
  mprotect(lowest, kPage, PROT_NONE);
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = lowest + kPage;
  fiber->bytes = kStack;
  prepare(*fiber);
  all_.push_back(std::move(fiber));
  return all_.back().get();
}

void FiberPool::reset() {
  if (!arena_) return;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(arena_, arena_bytes());
#endif
  munmap(arena_, arena_bytes());
  arena_ = nullptr;
  all_.clear();
  idle_.clear();
}

}  // namespace cuda_on_host
