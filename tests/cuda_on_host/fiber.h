#pragma once
#include <cstddef>
#include <memory>
#include <vector>

// On x86-64 a switch of our own, ten times as fast; CUDA_ON_HOST_UCONTEXT takes the portable one there too.
#if !defined(__x86_64__) && !defined(CUDA_ON_HOST_UCONTEXT)
#define CUDA_ON_HOST_UCONTEXT 1
#endif
#ifdef CUDA_ON_HOST_UCONTEXT
#include <ucontext.h>
#endif

namespace cuda_on_host {

/// A stack on which code can be suspended and resumed.
struct Fiber {
  char* stack = nullptr;
  std::size_t bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
#ifdef CUDA_ON_HOST_UCONTEXT
  ucontext_t context{};
#else
  void* stack_pointer = nullptr;
#endif
};

/// Suspends `from`, the running fiber, and resumes `to`.
void switch_fiber(Fiber& from, Fiber& to);

/// Fibers, each of which begins with entry(), a function that never returns. A page that faults lies below
/// each stack.
class FiberPool {
 public:
  FiberPool(void (*entry)(), std::size_t most) : entry_(entry), most_(most) {}
  ~FiberPool() { reset(); }
  Fiber* take();
  void give(Fiber* fiber) { idle_.push_back(fiber); }
  /// Ends all fibers, wherever they are suspended.
  void reset();
  bool contains(const void* address) const {
    auto* p = static_cast<const char*>(address);
    return p >= arena_ && p < arena_ + arena_bytes();
  }

 private:
  std::size_t arena_bytes() const;

  void (*entry_)();
  std::size_t most_;
  char* arena_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> idle_;
};

}  // namespace cuda_on_host
