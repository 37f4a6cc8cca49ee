#pragma once
#include <functional>
#include <memory>

// A GPU's work that is queued once and repeated. Defined in CUDA builds only.
namespace ssn {

/// What cuda_queue() was given, with its arguments and the memory that they point to: both are as they were
/// at every repetition. What is to differ lies in the device's memory.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  virtual ~Graph() = default;
  /// Queues it all, in about the time of one kernel.
  virtual void replay() = 0;
};

/// Records what `work` queues, which is not done. `work` waits for nothing, copies nothing from or to the
/// CPU's memory, and has been done before, so that libraries have made what they keep. Its storages should
/// come from an Arena, or others would be given memory that the graph writes. Other streams that take part
/// are waited for in it. What it throws ends the recording.
std::unique_ptr<Graph> record(const std::function<void()>& work);
/// Whether it can: not with SSN_SYNC=1, where each kernel is waited for.
bool can_record();

}  // namespace ssn
