#include "runtime/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/arena.h"
#include "runtime/config.h"
#include "runtime/device_memory.h"
#include "runtime/dispatch.h"
#include "runtime/dry_run.h"
#include "runtime/flavour.h"
#include "runtime/staging.h"

namespace ssn {
std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

namespace memory {
void* allocate(CpuQueue&, std::size_t bytes) {
  // More than there is would be given at first, and end the program at its use.
  void* p = bytes <= physical_memory() ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
  const PoolStats s = p ? PoolStats{} : pool_stats(Device::cpu);
  check(p != nullptr, "allocate",
        "no memory for {} bytes; {} bytes are held, {} of them in use: lower --batch or --input", bytes,
        s.held, s.in_use);
  return p;
}
void release(CpuQueue&, void* data) {
  std::free(data);
}
void fill_bytes(CpuQueue&, void* data, int value, std::size_t bytes) {
  std::memset(data, value, bytes);
}
void copy(CpuQueue&, void* to, const void* from, std::size_t bytes) {
  if (bytes) std::memmove(to, from, bytes);
}
}  // namespace memory

CpuQueue& cpu_queue() {
  static CpuQueue queue;
  return queue;
}

namespace {

/// Sizes are rounded up so that near misses share blocks: 256 bytes apart when small, an eighth of a power of
/// two when large.
std::size_t rounded(std::size_t bytes) {
  std::size_t step = 256;
  while (step * 16 < bytes) step *= 2;
  return (std::max<std::size_t>(bytes, 1) + step - 1) / step * step;
}

/// Blocks that are kept when they are given back. Thread-safe.
class Pool {
 public:
  /// Where blocks come from and go to.
  struct System {
    std::function<void*(std::size_t bytes)> allocate;
    std::function<void(void* data, std::size_t bytes)> release;
  };
  /// `keeps`: or what is given back goes to the system at once.
  explicit Pool(System system, bool keeps = !build::exact_allocation)
      : system_(std::move(system)), keeps_(keeps) {}
  ~Pool() { trim(); }

  /// A block of `bytes`, or more: `bytes` becomes its size. One that is free is not wasted on much less, but
  /// serves the smaller last batch of an evaluation.
  void* take(std::size_t& bytes) {
    std::unique_lock lock(mutex_);
    if (auto it = free_.lower_bound(bytes); it != free_.end() && it->first <= bytes + slack(bytes)) {
      void* p = it->second.back();
      bytes = it->first;
      it->second.pop_back();
      if (it->second.empty()) free_.erase(it);
      use(bytes);
      return p;
    }
    lock.unlock();
    void* p = system_.allocate(bytes);
    lock.lock();
    stats_.held += bytes;
    ++stats_.requests_to_system;
    use(bytes);
    return p;
  }
  void give(void* p, std::size_t bytes) {
    std::unique_lock lock(mutex_);
    stats_.in_use -= bytes;
    if (keeps_) {
      free_[bytes].push_back(p);
    } else {
      stats_.held -= bytes;
      system_.release(p, bytes);
    }
  }
  void trim() {
    std::unique_lock lock(mutex_);
    for (auto& [bytes, blocks] : free_) {
      for (void* p : blocks) {
        system_.release(p, bytes);
        stats_.held -= bytes;
      }
    }
    free_.clear();
  }
  /// What is someone else's counts as long as it is referred to.
  void count_in(std::size_t bytes) {
    std::unique_lock lock(mutex_);
    stats_.held += bytes;
    use(bytes);
  }
  void count_out(std::size_t bytes) {
    std::unique_lock lock(mutex_);
    stats_.held -= bytes;
    stats_.in_use -= bytes;
  }
  PoolStats stats() {
    std::unique_lock lock(mutex_);
    return stats_;
  }

 private:
  static std::size_t slack(std::size_t bytes) { return build::exact_allocation ? 0 : bytes / 2; }
  void use(std::size_t bytes) {
    stats_.in_use += bytes;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
  }

  System system_;
  bool keeps_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  PoolStats stats_;
};

Pool::System system_of(Device device) {
  return {[=](std::size_t bytes) {
            return on_queue(device, "allocate", [&](auto& q) { return memory::allocate(q, bytes); });
          },
          [=](void* data, std::size_t) {
            on_queue(device, "release", [&](auto& q) { memory::release(q, data); });
          }};
}

Pool& pool(Device device) {  // never destroyed: static tensors may outlive it
  static Pool& cpu = *new Pool(system_of(Device::cpu));
  static Pool& cuda = *new Pool(system_of(Device::cuda));
  return device == Device::cpu ? cpu : cuda;
}

/// Of the CPU's memory, for copies to a GPU. Not destroyed either.
Pool& pinned_pool() {
  static Pool& made = *new Pool({[](std::size_t bytes) -> void* {
                                   if constexpr (build::has_cuda) return memory::allocate_pinned(bytes);
                                   fail("allocate", "this build has no CUDA, and no memory for its copies");
                                 },
                                 [](void* data, std::size_t) {
                                   if constexpr (build::has_cuda) memory::release_pinned(data);
                                 }});
  return made;
}

thread_local DryRun* t_dry_run = nullptr;
thread_local const Arena* t_arena = nullptr;

/// Address space without memory behind it: of what is large, for there is a limit to the number of maps.
Pool::System address_space() {
  constexpr std::size_t kLarge = 1 << 16;
  return {
      [](std::size_t bytes) {
        if (bytes < kLarge) return memory::allocate(cpu_queue(), bytes);
        void* p =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        check(p != MAP_FAILED, "dry run", "no address space for {} bytes: is it limited (ulimit -v)?", bytes);
        return p;
      },
      [](void* data, std::size_t bytes) {
        if (bytes < kLarge)
          memory::release(cpu_queue(), data);
        else
          munmap(data, bytes);
      }};
}

}  // namespace

class DryRun::Pool : public ssn::Pool {
 public:
  Pool() : ssn::Pool(address_space()) {}
};

class Arena::Pool : public ssn::Pool {
 public:
  explicit Pool(Device device) : ssn::Pool(counted(device), true) {}

 private:
  /// What the arena holds counts as taken from the device's pool.
  static System counted(Device device) {
    const System system = system_of(device);
    return {[=](std::size_t bytes) {
              void* data = system.allocate(bytes);
              pool(device).count_in(bytes);
              return data;
            },
            [=](void* data, std::size_t bytes) {
              pool(device).count_out(bytes);
              system.release(data, bytes);
            }};
  }
};

Arena::Arena(Device device) : device_(device), pool_(std::make_shared<Pool>(device)) {}
Arena::Use::Use(const Arena& arena) : outer_(t_arena) {
  t_arena = &arena;
}
Arena::Use::~Use() {
  t_arena = outer_;
}

DryRun::DryRun() : pool_(std::make_shared<Pool>()), outer_(t_dry_run) {
  t_dry_run = this;
}
DryRun::~DryRun() {
  t_dry_run = outer_;
}
PoolStats DryRun::stats() const {
  return pool_->stats();
}
bool dry_run() {
  return t_dry_run != nullptr;
}

namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr int kGuard = 0xA5, kGarbage = 0xFF;  // kGarbage: NaN as a float of any width, −1 as an integer
std::atomic<bool> g_guards = false;
std::atomic<std::size_t> g_violations = 0;

void set_guard(Device device, char* end) {
  on_queue(device, "guard", [&](auto& q) { memory::fill_bytes(q, end, kGuard, kGuardBytes); });
}
void look_at_guard(Device device, const char* end) {
  unsigned char seen[kGuardBytes];
  on_queue(device, "guard", [&](auto& q) { memory::copy(q, seen, end, kGuardBytes); });
  if (std::any_of(seen, seen + kGuardBytes, [](unsigned char c) { return c != kGuard; })) ++g_violations;
}

}  // namespace

std::size_t guard_storages() {
  g_guards = true;
  return g_violations;
}

Storage Storage::allocate(Device device, std::size_t bytes) {
  Storage s;
  if (t_dry_run) {
    std::size_t size = build::exact_allocation ? std::max<std::size_t>(bytes, 1) : rounded(bytes);
    void* data = t_dry_run->pool_->take(size);
    s.block_ = std::make_shared<Block>(device, data, bytes);
    s.block_->release = [pool = t_dry_run->pool_, data, size] { pool->give(data, size); };
    return s;
  }
  const bool guarded = g_guards && !build::exact_allocation;
  const std::size_t wanted = bytes + (guarded ? kGuardBytes : 0);
  std::size_t size = build::exact_allocation ? std::max<std::size_t>(wanted, 1) : rounded(wanted);
  const auto arena = t_arena && t_arena->device_ == device ? t_arena->pool_ : nullptr;
  char* data = static_cast<char*>((arena ? *arena : pool(device)).take(size));
  s.block_ = std::make_shared<Block>(device, data, bytes);
  s.block_->release = [=] {
    if (guarded) look_at_guard(device, data + bytes);
    (arena ? *arena : pool(device)).give(data, size);
  };
  if (guarded || build::exact_allocation)
    on_queue(device, "allocate", [&](auto& q) { memory::fill_bytes(q, data, kGarbage, bytes); });
  if (guarded) set_guard(device, data + bytes);
  return s;
}

Storage Storage::adopt(Device device, void* data, std::size_t bytes, std::function<void()> release) {
  Storage s;
  s.block_ = std::make_shared<Block>(device, data, bytes);
  pool(device).count_in(bytes);
  s.block_->release = [=, release = std::move(release)] {
    pool(device).count_out(bytes);
    if (release) release();
  };
  return s;
}

Storage pinned_storage(std::size_t bytes) {
  std::size_t size = build::exact_allocation ? std::max<std::size_t>(bytes, 1) : rounded(bytes);
  void* data = pinned_pool().take(size);
  return Storage::adopt(Device::cpu, data, bytes, [=] { pinned_pool().give(data, size); });
}

PoolStats pool_stats(Device device) {
  return pool(device).stats();
}
void trim_pool(Device device) {
  pool(device).trim();
}

}  // namespace ssn
