#include "runtime/trace.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "runtime/checkpoint.h"

namespace ssn {
namespace {

struct Event {
  const char* name;
  std::int64_t begin, end, bytes;
};

// A thread records into its own list; its mutex is contended only while the trace is written.
struct ThreadEvents {
  std::mutex mutex;
  std::vector<Event> events;
};

struct Recorder {
  std::mutex mutex;  // guards threads
  std::vector<std::unique_ptr<ThreadEvents>> threads;
  std::atomic<std::size_t> limit{0}, recorded{0};
};
Recorder& state() {
  static Recorder* trace = new Recorder;  // never destroyed: threads may end after static objects are gone
  return *trace;
}

ThreadEvents& mine() {
  thread_local ThreadEvents* events = [] {
    std::lock_guard lock(state().mutex);
    return state().threads.emplace_back(std::make_unique<ThreadEvents>()).get();
  }();
  return *events;
}

}  // namespace

namespace detail {
std::int64_t trace_clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void trace_event(const char* name, std::int64_t begin, std::int64_t end, std::int64_t bytes) {
  Recorder& trace = state();
  if (trace.recorded.fetch_add(1, std::memory_order_relaxed) >= trace.limit.load(std::memory_order_relaxed))
    return;
  ThreadEvents& events = mine();
  std::lock_guard lock(events.mutex);
  events.events.push_back({name, begin, end, bytes});
}
}  // namespace detail

void start_trace(std::size_t max_events) {
  Recorder& trace = state();
  std::lock_guard lock(trace.mutex);
  for (auto& thread : trace.threads) {
    std::lock_guard thread_lock(thread->mutex);
    thread->events.clear();
  }
  trace.limit = max_events;
  trace.recorded = 0;
  detail::g_trace_on = true;
}

Trace stop_trace() {
  detail::g_trace_on = false;
  Recorder& recorder = state();
  Trace trace;
  std::lock_guard lock(recorder.mutex);
  for (std::size_t thread = 0; thread < recorder.threads.size(); ++thread) {
    std::lock_guard thread_lock(recorder.threads[thread]->mutex);
    for (const Event& e : recorder.threads[thread]->events)
      trace.events.push_back({e.name, thread, e.begin, e.end, e.bytes});
  }
  std::sort(trace.events.begin(), trace.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.thread, a.begin, -a.end) < std::tuple(b.thread, b.begin, -b.end);
  });
  trace.dropped = recorder.recorded - trace.events.size();
  return trace;
}

TraceWritten write_trace(const std::string& path, int rank) {
  const Trace trace = stop_trace();
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const auto put = [out = std::back_inserter(text)]<class... A>(fmt::format_string<A...> format,
                                                                A&&... args) {
    fmt::format_to(out, format, std::forward<A>(args)...);
  };
  put(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"rank {}"}}}})", rank, rank);
  for (const TraceEvent& event : trace.events) {
    put(",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{}", rank, event.thread,
        static_cast<double>(event.begin) / 1e3, static_cast<double>(event.end - event.begin) / 1e3,
        nlohmann::json(event.name).dump());
    if (event.bytes > 0) put(",\"args\":{{\"bytes\":{}}}", event.bytes);
    put("}}");
  }
  put("\n],\"otherData\":{{\"dropped\":{}}}}}\n", trace.dropped);
  atomic_write_text(path, text);
  return {trace.events.size(), trace.dropped};
}

}  // namespace ssn
