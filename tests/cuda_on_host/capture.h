#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_on_host/runtime.h"

// Work on streams that is recorded instead of done, and repeated as a graph.
namespace cuda_on_host {

/// Work in lanes that wait for each other.
class Recording {
 public:
  struct Node {
    std::function<cudaError_t()> work;  // none: a wait
    std::size_t other = 0, count = 0;   // for so many of another lane
  };
  /// Does the work, that of other lanes than the first as early or as late as their waits and the first's
  /// allow. The first error ends it.
  cudaError_t run(bool early) const;
  /// How many of each lane's the end of the first comes after.
  std::vector<std::size_t> joined() const;

  std::vector<std::vector<Node>> lanes = std::vector<std::vector<Node>>(1);

 private:
  cudaError_t run(std::size_t lane, std::size_t until, std::vector<std::size_t>& done) const;
  cudaError_t run_others(std::vector<std::size_t>& done) const;
};

/// The making of a recording. Its lanes are the streams that take part; lane 0 is the one that began it.
/// Guarded by the streams' mutex, but for what spoils it, which may be any call of any thread.
class Capture {
 public:
  explicit Capture(cudaStreamCaptureMode mode) : mode_(mode) {}

  cudaStreamCaptureMode mode() const { return mode_; }
  std::thread::id thread() const { return thread_; }
  std::size_t join() { return made_.lanes.emplace_back(), made_.lanes.size() - 1; }
  std::size_t size(std::size_t lane) const { return made_.lanes[lane].size(); }
  /// An error once the capture is spoilt.
  cudaError_t add(std::size_t lane, std::function<cudaError_t()> work);
  /// What follows in `lane` comes after the first `count` of `other`.
  cudaError_t add_wait(std::size_t lane, std::size_t other, std::size_t count);
  /// A call that is not allowed makes all of it void.
  void spoil(std::string why);
  /// Ended by cudaStreamEndCapture: gives away what was made, or says what keeps it from becoming a graph.
  cudaError_t finish(Recording& made);
  bool ended() const { return ended_; }

 private:
  cudaError_t check_whole() const;

  cudaStreamCaptureMode mode_;
  std::thread::id thread_ = std::this_thread::get_id();
  Recording made_;
  mutable std::mutex spoiling_;
  std::string spoilt_;  // by what
  bool ended_ = false;
};

/// The place of a stream, or of an event, in a capture; none: it is in no capture.
struct Seat {
  std::shared_ptr<Capture> capture;
  std::size_t lane = 0;
  explicit operator bool() const { return capture != nullptr; }
};

/// Notes what is being captured, until it has ended.
void begin_capture(const std::shared_ptr<Capture>& capture);
void end_capture(const std::shared_ptr<Capture>& capture);
/// An error, and the capture is spoilt, if this thread may not make this call because of a capture.
cudaError_t check_allowed(const char* call);
/// The capture that forbids this thread potentially unsafe calls, or a null.
std::shared_ptr<Capture> forbidding_capture();

/// A graph of what was captured.
cudaGraph_t make_graph(Recording recording);

}  // namespace cuda_on_host
