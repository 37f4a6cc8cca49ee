#include "runtime/graph.h"

#include "runtime/cuda/launch.cuh"
#include "runtime/log.h"
#include "runtime/queue.h"

namespace ssn {
namespace {

constexpr const char* kWhere = "record";

/// An executable graph, of which nothing else is kept.
class CudaGraph : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t recorded) {
    cuda_check(cudaGraphInstantiate(&executable_, recorded, 0), kWhere);
  }
  /// It may be running: the device's work comes to its end first.
  ~CudaGraph() override {
    cudaStreamSynchronize(cuda_queue().stream);
    if (cudaGraphExecDestroy(executable_) != cudaSuccess) warn("a CUDA graph could not be destroyed");
  }
  void replay() override { cuda_check(cudaGraphLaunch(executable_, cuda_queue().stream), "replay"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

struct Recorded {
  cudaGraph_t graph = nullptr;
  ~Recorded() {
    if (graph) cudaGraphDestroy(graph);
  }
};

}  // namespace

bool can_record() {
  return !launches_wait();
}

std::unique_ptr<Graph> record(const std::function<void()>& work) {
  CudaQueue& q = cuda_queue();
  // Other threads go on as they do: of their calls, none is about this stream.
  cuda_check(cudaStreamBeginCapture(q.stream, cudaStreamCaptureModeThreadLocal), kWhere);
  Recorded recorded;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(q.stream, &recorded.graph);
    cudaGetLastError();
    throw;
  }
  cuda_check(cudaStreamEndCapture(q.stream, &recorded.graph), kWhere);
  return std::make_unique<CudaGraph>(recorded.graph);
}

}  // namespace ssn
