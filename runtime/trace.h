#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Where the time goes: spans, written as a file for ui.perfetto.dev or chrome://tracing.
namespace ssn {

namespace detail {
inline std::atomic<bool> g_trace_on{false};
std::int64_t trace_clock();  // nanoseconds
void trace_event(const char* name, std::int64_t begin, std::int64_t end, std::int64_t bytes);
}  // namespace detail

inline constexpr std::size_t kTraceEvents = std::size_t{1} << 20;  // 32 bytes each

/// Records spans from now on, at most `max_events`; what comes after these is counted and dropped.
void start_trace(std::size_t max_events = kTraceEvents);

struct TraceEvent {
  const char* name;
  std::size_t thread;
  std::int64_t begin, end;  // nanoseconds
  std::int64_t bytes = 0;   // that are summed over the ranks
};
struct Trace {
  std::vector<TraceEvent> events;  // by thread, then by beginning; what contains others is before them
  std::size_t dropped = 0;
};
/// Stops recording.
Trace stop_trace();

/// Stops recording and writes `path` (JSON; a temporary file, then renamed). `rank` becomes the process's
/// number in it.
struct TraceWritten {
  std::size_t events = 0, dropped = 0;
};
TraceWritten write_trace(const std::string& path, int rank = 0);

/// Times the scope it lives in. One load when tracing is off. `name` must outlive the trace: a literal.
class Span {
 public:
  explicit Span(const char* name, std::int64_t bytes = 0) {
    if (detail::g_trace_on.load(std::memory_order_relaxed)) [[unlikely]] {
      name_ = name;
      bytes_ = bytes;
      begin_ = detail::trace_clock();
    }
  }
  ~Span() {
    if (name_ != nullptr) [[unlikely]]
      detail::trace_event(name_, begin_, detail::trace_clock(), bytes_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_ = nullptr;
  std::int64_t begin_ = 0, bytes_ = 0;
};

}  // namespace ssn
