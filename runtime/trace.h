#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config.h"
#include "runtime/liveness.h"

// Where the time goes: spans. runtime/trace_file.h writes those of all ranks as a file; in CUDA builds they
// are NVTX ranges as well.
namespace ssn {

namespace detail {
inline std::atomic<bool> g_trace_on{false};
std::int64_t trace_clock();  // nanoseconds
void trace_event(const char* name, std::int64_t begin, std::int64_t end, std::int64_t bytes);
void open_range(const char* name);  // runtime/cuda/ranges.cpp
void close_range();
}  // namespace detail

inline constexpr std::size_t kTraceEvents = std::size_t{1} << 20;  // 32 bytes each

/// Records spans from now on, at most `max_events`; what comes after these is counted and dropped. The
/// calling thread is named "compute".
void start_trace(std::size_t max_events = kTraceEvents);
/// Names the calling thread; a literal. For one that starts: before its first span.
void name_thread(const char* name);

struct TraceEvent {
  const char* name;
  std::size_t thread;
  std::int64_t begin, end;  // nanoseconds
  std::int64_t bytes = 0;   // that are summed over the ranks
};
struct Trace {
  std::vector<TraceEvent> events;         // by thread, then by beginning; what contains others is before them
  std::vector<std::string> threads = {};  // their names, empty for those without one
  std::size_t dropped = 0;
};
/// Stops recording.
Trace stop_trace();

/// Times the scope it lives in. One load when tracing is off. `name` must outlive the trace: a literal.
class Span {
 public:
  explicit Span(const char* name, std::int64_t bytes = 0) {
    if constexpr (build::has_cuda) detail::open_range(name);
    note_progress();
    if (detail::g_trace_on.load(std::memory_order_relaxed)) [[unlikely]] {
      name_ = name;
      bytes_ = bytes;
      begin_ = detail::trace_clock();
    }
  }
  ~Span() {
    if (name_ != nullptr) [[unlikely]]
      detail::trace_event(name_, begin_, detail::trace_clock(), bytes_);
    if constexpr (build::has_cuda) detail::close_range();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_ = nullptr;
  std::int64_t begin_ = 0, bytes_ = 0;
};

}  // namespace ssn
