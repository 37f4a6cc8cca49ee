#include "tests/cuda_on_host/streams.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>

#include "tests/cuda_on_host/capture.h"
#include "tests/cuda_on_host/runtime_error.h"
#include "tests/cuda_on_host/schedules.h"

struct CUstream_st {
  int device = 0;
  bool blocking = true;  // towards the null stream
  bool asked = false;    // cudaStreamQuery has said no to what is queued
  std::deque<std::function<cudaError_t()>> queue = {};
  std::uint64_t queued = 0, done = 0;  // pieces of work so far
  cuda_on_host::Seat seat = {};
};
struct CUevent_st {
  std::shared_ptr<CUstream_st> stream;  // null: not recorded yet
  std::uint64_t after = 0;              // so many pieces of its work
  cuda_on_host::Seat seat = {};         // recorded there
};

namespace cuda_on_host {
namespace {

struct Registry {  // never destroyed: static objects may use streams late
  std::recursive_mutex mutex;
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams;
  std::set<cudaEvent_t> events;
  std::shared_ptr<CUstream_st> null = std::make_shared<CUstream_st>();
};
Registry& registry() {
  static Registry& r = *new Registry;
  return r;
}

std::shared_ptr<CUstream_st> find(cudaStream_t stream) {
  if (!stream) return registry().null;
  const auto it = registry().streams.find(stream);
  return it == registry().streams.end() ? nullptr : it->second;
}

/// The first error of the stream's work up to this piece.
cudaError_t run(CUstream_st& s, std::uint64_t until) {
  cudaError_t first = cudaSuccess;
  while (s.done < until && !s.queue.empty()) {
    const auto work = std::move(s.queue.front());
    s.queue.pop_front();
    const cudaError_t e = work();
    ++s.done;
    if (first == cudaSuccess) first = e;
  }
  s.asked = false;
  return first;
}

/// Streams of one kind, or all.
cudaError_t run_streams(bool blocking_only) {
  cudaError_t first = cudaSuccess;
  for (const auto& [unused, s] : registry().streams) {
    const cudaError_t e = blocking_only && !s->blocking ? cudaSuccess : run(*s, s->queued);
    if (first == cudaSuccess) first = e;
  }
  return first;
}

cudaError_t check_event(cudaEvent_t event) {
  if (registry().events.contains(event)) return cudaSuccess;
  return error(cudaErrorInvalidResourceHandle, "no such event");
}

void look_for_leaks() {
  if (registry().events.empty()) return;
  std::fprintf(stderr, "cuda_on_host: %zu events were not destroyed\n", registry().events.size());
  std::_Exit(1);
}

}  // namespace

Streams& streams() {
  static Streams s = [] {
    const char* value = std::getenv("SSN_STREAMS");
    return value && std::string_view(value) == "late" ? Streams::late : Streams::prompt;
  }();
  return s;
}

cudaError_t check_stream(cudaStream_t stream) {
  std::lock_guard lock(registry().mutex);
  const auto s = find(stream);
  if (!s) return error(cudaErrorInvalidResourceHandle, "no such stream");
  if (!stream || s->device == current_device()) return cudaSuccess;
  return error(cudaErrorInvalidResourceHandle, "the stream is of device {}, the current one is {}", s->device,
               current_device());
}

bool is_captured(cudaStream_t stream) {
  std::lock_guard lock(registry().mutex);
  const auto s = find(stream);
  return s && s->seat;
}
cudaError_t refuse_capture(cudaStream_t stream, const char* why) {
  std::lock_guard lock(registry().mutex);
  find(stream)->seat.capture->spoil(why);
  return error(cudaErrorStreamCaptureUnsupported, "{}", why);
}

namespace {

/// An error if the stream is captured, or this thread may not wait because of what it captures.
cudaError_t check_wait(const CUstream_st& s, const char* call) {
  if (const cudaError_t e = check_allowed(call); e != cudaSuccess) return e;
  if (!s.seat) return cudaSuccess;
  s.seat.capture->spoil(fmt::format("{} was called", call));
  return error(cudaErrorStreamCaptureUnsupported, "{} of a stream that is captured", call);
}

/// The null stream waits for others, so it is not for a thread that captures one.
cudaError_t check_null_stream() {
  const std::shared_ptr<Capture> capture = forbidding_capture();
  if (!capture) return cudaSuccess;
  capture->spoil("the null stream was used");
  return error(cudaErrorStreamCaptureImplicit, "the null stream is not for use while a stream is captured");
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> work) {
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess) return e;
  if (is_captured(stream)) {
    std::lock_guard lock(registry().mutex);
    const Seat& seat = find(stream)->seat;
    return seat.capture->add(seat.lane, std::move(work));
  }
  if (const cudaError_t e = stream ? cudaSuccess : check_null_stream(); e != cudaSuccess) return e;
  if (streams() == Streams::prompt) return work();
  std::lock_guard lock(registry().mutex);
  if (!stream) {
    const cudaError_t before = run_streams(true), e = work();
    return before == cudaSuccess ? e : before;
  }
  const auto s = find(stream);
  s->queue.push_back(std::move(work));
  ++s->queued;
  return cudaSuccess;
}

cudaError_t run_everything() {
  std::lock_guard lock(registry().mutex);
  return run_streams(false);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags > cudaStreamNonBlocking) return error(cudaErrorInvalidValue, "stream flags {}", flags);
  std::lock_guard lock(registry().mutex);
  auto s = std::make_shared<CUstream_st>(
      CUstream_st{.device = current_device(), .blocking = flags == cudaStreamDefault});
  *stream = s.get();
  registry().streams[*stream] = std::move(s);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard lock(registry().mutex);
  const auto s = stream ? find(stream) : nullptr;
  if (!s) return error(cudaErrorInvalidResourceHandle, "no such stream");
  const cudaError_t e = run(*s, s->queued);
  registry().streams.erase(stream);
  return e;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess) return e;
  std::lock_guard lock(registry().mutex);
  const auto s = find(stream);
  if (const cudaError_t e = check_wait(*s, "cudaStreamSynchronize"); e != cudaSuccess) return e;
  return run(*s, s->queued);
}
/// Says no once: who polls comes again.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess) return e;
  std::lock_guard lock(registry().mutex);
  const auto s = find(stream);
  if (const cudaError_t e = check_wait(*s, "cudaStreamQuery"); e != cudaSuccess) return e;
  if (!s->queue.empty() && !s->asked) {
    s->asked = true;
    return error(cudaErrorNotReady, "work is left on the stream");
  }
  return run(*s, s->queued);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (flags > (cudaEventBlockingSync | cudaEventDisableTiming))
    return error(cudaErrorInvalidValue, "event flags {}", flags);
  std::lock_guard lock(registry().mutex);
  static const int at_exit = std::atexit(look_for_leaks);
  if (at_exit != 0) return error(cudaErrorMemoryAllocation, "leaks at exit would go unseen");
  registry().events.insert(*event = new CUevent_st);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::lock_guard lock(registry().mutex);
  if (const cudaError_t e = check_event(event); e != cudaSuccess) return e;
  registry().events.erase(event);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess) return e;
  std::lock_guard lock(registry().mutex);
  if (const cudaError_t e = check_event(event); e != cudaSuccess) return e;
  event->stream = find(stream);
  event->seat = event->stream->seat;
  event->after = event->seat ? event->seat.capture->size(event->seat.lane) : event->stream->queued;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::lock_guard lock(registry().mutex);
  if (const cudaError_t e = check_event(event); e != cudaSuccess) return e;
  if (event->seat) return error(cudaErrorCapturedEvent, "the event was recorded in a capture");
  if (const cudaError_t e = check_allowed("cudaEventSynchronize"); e != cudaSuccess) return e;
  return event->stream ? run(*event->stream, event->after) : cudaSuccess;
}
namespace {

/// In a capture, an event of it makes a stream take part.
cudaError_t wait_in_capture(CUstream_st& s, const CUevent_st& event) {
  if (!event.seat) {
    s.seat.capture->spoil("an event from outside was waited for");
    return error(cudaErrorStreamCaptureIsolation, "the event was recorded outside of the stream's capture");
  }
  Capture& capture = *event.seat.capture;
  if (capture.ended()) return error(cudaErrorCapturedEvent, "the event is of a capture that has ended");
  if (s.seat && s.seat.capture != event.seat.capture) {
    s.seat.capture->spoil("an event of another capture was waited for");
    return error(cudaErrorStreamCaptureMerge, "the event is of another capture than the stream");
  }
  if (!s.seat) s.seat = {event.seat.capture, capture.join()};
  return capture.add_wait(s.seat.lane, event.seat.lane, event.after);
}

}  // namespace

/// What the event holds now counts: it may be recorded again.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  std::lock_guard lock(registry().mutex);
  if (const cudaError_t e = check_event(event); e != cudaSuccess) return e;
  if (flags != 0) return error(cudaErrorInvalidValue, "flags {}", flags);
  if (!event->stream)
    return error(cudaErrorInvalidValue, "the event was never recorded: nothing is waited for");
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess) return e;
  if (const auto s = find(stream); s->seat || event->seat) return wait_in_capture(*s, *event);
  return enqueue(stream, [other = event->stream, after = event->after] { return run(*other, after); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess) return e;
  if (!stream) return error(cudaErrorStreamCaptureUnsupported, "the null stream cannot be captured");
  std::lock_guard lock(registry().mutex);
  const auto s = find(stream);
  if (s->seat) return error(cudaErrorIllegalState, "the stream is captured already");
  s->seat = {std::make_shared<Capture>(mode), 0};
  begin_capture(s->seat.capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess) return e;
  std::lock_guard lock(registry().mutex);
  const Seat seat = find(stream)->seat;
  if (!seat) return error(cudaErrorIllegalState, "the stream is not captured");
  if (seat.lane != 0)
    return error(cudaErrorStreamCaptureUnmatched, "the capture was begun on another stream");
  if (seat.capture->thread() != std::this_thread::get_id())
    return error(cudaErrorStreamCaptureWrongThread, "the capture was begun by another thread");
  for (const auto& [unused, s] : registry().streams)
    if (s->seat.capture == seat.capture) s->seat = {};
  end_capture(seat.capture);
  Recording made;
  const cudaError_t e = seat.capture->finish(made);
  if (e == cudaSuccess) *graph = make_graph(std::move(made));
  return e;
}
