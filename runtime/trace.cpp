#include "runtime/trace.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace ssn {
namespace {

struct Event {
  const char* name;
  std::int64_t begin, end, bytes;
};

// A thread records into its own list; its mutex is contended only while the trace is written.
struct ThreadEvents {
  std::mutex mutex;
  const char* name = "";
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

thread_local const char* thread_name = "";

ThreadEvents& mine() {
  thread_local ThreadEvents* events = [] {
    std::lock_guard lock(state().mutex);
    ThreadEvents* created = state().threads.emplace_back(std::make_unique<ThreadEvents>()).get();
    created->name = thread_name;
    return created;
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

void name_thread(const char* name) {
  thread_name = name;
}

void start_trace(std::size_t max_events) {
  Recorder& trace = state();
  name_thread("compute");
  mine().name = thread_name;
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
    trace.threads.emplace_back(recorder.threads[thread]->name);
    for (const Event& e : recorder.threads[thread]->events)
      trace.events.push_back({e.name, thread, e.begin, e.end, e.bytes});
  }
  std::sort(trace.events.begin(), trace.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.thread, a.begin, -a.end) < std::tuple(b.thread, b.begin, -b.end);
  });
  trace.dropped = recorder.recorded - trace.events.size();
  return trace;
}

}  // namespace ssn
