#pragma once
#include <atomic>
#include <cstdint>

// What the watchdog over the ranks (runtime/watchdog.h) takes for life.
namespace ssn {

namespace detail {
inline std::atomic<std::uint64_t> g_progress{0};
inline std::atomic<const char*> g_busy{nullptr};
}  // namespace detail

/// This process has got on: every Span says so, and whatever else takes long in small parts.
inline void note_progress() {
  detail::g_progress.fetch_add(1, std::memory_order_relaxed);
}

/// While it lives, this process does something that may take long and cannot say how far it is, such as
/// "writes files": a literal. The others wait for it as long as it shows life. For one thread at a time.
class Busy {
 public:
  explicit Busy(const char* what) : before_(detail::g_busy.exchange(what)) {}
  ~Busy() {
    note_progress();  // first: the time up to here does not count
    detail::g_busy = before_;
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  const char* before_;
};

}  // namespace ssn
