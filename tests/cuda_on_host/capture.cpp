#include "tests/cuda_on_host/capture.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "tests/cuda_on_host/runtime_error.h"
#include "tests/cuda_on_host/streams.h"

struct CUgraph_st {
  std::shared_ptr<const cuda_on_host::Recording> recording;
};
struct CUgraphExec_st {
  std::shared_ptr<const cuda_on_host::Recording> recording;
  bool early = true;  // of the last repetition: the next does the other streams' work at the other end
};

namespace cuda_on_host {
namespace {

struct Registry {  // never destroyed: static objects may have graphs
  std::mutex mutex;
  std::set<std::shared_ptr<Capture>> captures;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
};
Registry& registry() {
  static Registry& r = *new Registry;
  return r;
}

thread_local cudaStreamCaptureMode t_mode = cudaStreamCaptureModeGlobal;

void look_for_leaks() {
  const std::size_t left = registry().graphs.size() + registry().executables.size();
  if (left == 0) return;
  std::fprintf(stderr, "cuda_on_host: %zu graphs were not destroyed\n", left);
  std::_Exit(1);
}

template <class Handle>
cudaError_t destroy(std::set<Handle>& all, Handle handle) {
  std::lock_guard lock(registry().mutex);
  if (all.erase(handle) == 0) return error(cudaErrorInvalidValue, "no such graph");
  delete handle;
  return cudaSuccess;
}

}  // namespace

cudaError_t Capture::check_whole() const {
  std::lock_guard lock(spoiling_);
  if (spoilt_.empty()) return cudaSuccess;
  return error(cudaErrorStreamCaptureInvalidated, "the capture is void: {}", spoilt_);
}

cudaError_t Capture::add(std::size_t lane, std::function<cudaError_t()> work) {
  if (const cudaError_t e = check_whole(); e != cudaSuccess) return e;
  made_.lanes[lane].push_back({std::move(work)});
  return cudaSuccess;
}
cudaError_t Capture::add_wait(std::size_t lane, std::size_t other, std::size_t count) {
  if (const cudaError_t e = check_whole(); e != cudaSuccess) return e;
  made_.lanes[lane].push_back({nullptr, other, count});
  return cudaSuccess;
}

void Capture::spoil(std::string why) {
  std::lock_guard lock(spoiling_);
  if (spoilt_.empty()) spoilt_ = std::move(why);
}

cudaError_t Capture::finish(Recording& made) {
  ended_ = true;
  made = std::move(made_);
  if (const cudaError_t e = check_whole(); e != cudaSuccess) return e;
  const std::vector<std::size_t> joined = made.joined();
  for (std::size_t lane = 0; lane < joined.size(); ++lane)
    if (const std::size_t all = made.lanes[lane].size(); joined[lane] < all)
      return error(cudaErrorStreamCaptureUnjoined, "{} pieces of work of another stream are not waited for",
                   all - joined[lane]);
  return cudaSuccess;
}

std::vector<std::size_t> Recording::joined() const {
  std::vector<std::size_t> joined(lanes.size());
  joined[0] = lanes[0].size();
  for (bool more = true; std::exchange(more, false);)
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
      for (std::size_t i = 0; i < joined[lane]; ++i) {
        const Node& node = lanes[lane][i];
        if (node.work || joined[node.other] >= node.count) continue;
        joined[node.other] = node.count;
        more = true;
      }
  return joined;
}

cudaError_t Recording::run(std::size_t lane, std::size_t until, std::vector<std::size_t>& done) const {
  while (done[lane] < until) {
    const Node& node = lanes[lane][done[lane]++];
    const cudaError_t e = node.work ? node.work() : run(node.other, node.count, done);
    if (e != cudaSuccess) return e;
  }
  return cudaSuccess;
}
/// What waits for nothing that is to come.
cudaError_t Recording::run_others(std::vector<std::size_t>& done) const {
  for (bool more = true; std::exchange(more, false);)
    for (std::size_t lane = 1; lane < lanes.size(); ++lane) {
      if (done[lane] == lanes[lane].size()) continue;
      const Node& node = lanes[lane][done[lane]];
      if (!node.work && done[node.other] < node.count) continue;
      if (const cudaError_t e = run(lane, done[lane] + 1, done); e != cudaSuccess) return e;
      more = true;
    }
  return cudaSuccess;
}
cudaError_t Recording::run(bool early) const {
  std::vector<std::size_t> done(lanes.size());
  for (std::size_t i = 0; i < lanes[0].size(); ++i) {
    if (const cudaError_t e = early ? run_others(done) : cudaSuccess; e != cudaSuccess) return e;
    if (const cudaError_t e = run(0, i + 1, done); e != cudaSuccess) return e;
  }
  return cudaSuccess;
}

void begin_capture(const std::shared_ptr<Capture>& capture) {
  std::lock_guard lock(registry().mutex);
  registry().captures.insert(capture);
}
void end_capture(const std::shared_ptr<Capture>& capture) {
  std::lock_guard lock(registry().mutex);
  registry().captures.erase(capture);
}

std::shared_ptr<Capture> forbidding_capture() {
  if (t_mode == cudaStreamCaptureModeRelaxed) return nullptr;
  std::lock_guard lock(registry().mutex);
  const auto forbids = [](const std::shared_ptr<Capture>& capture) {
    const bool own = capture->thread() == std::this_thread::get_id();
    return (own && capture->mode() != cudaStreamCaptureModeRelaxed) ||
           (t_mode == cudaStreamCaptureModeGlobal && capture->mode() == cudaStreamCaptureModeGlobal);
  };
  const auto found = std::ranges::find_if(registry().captures, forbids);
  return found == registry().captures.end() ? nullptr : *found;
}

cudaError_t check_allowed(const char* call) {
  const std::shared_ptr<Capture> capture = forbidding_capture();
  if (!capture) return cudaSuccess;
  capture->spoil(fmt::format("{} was called", call));
  return error(cudaErrorStreamCaptureUnsupported, "{} is not allowed while a stream is captured", call);
}

cudaGraph_t make_graph(Recording recording) {
  std::lock_guard lock(registry().mutex);
  static const int at_exit = std::atexit(look_for_leaks);
  if (at_exit != 0) std::abort();  // leaks at exit would go unseen
  return *registry()
              .graphs.insert(new CUgraph_st{std::make_shared<const Recording>(std::move(recording))})
              .first;
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(t_mode, *mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (flags != 0) return error(cudaErrorInvalidValue, "flags {}", flags);
  std::lock_guard lock(registry().mutex);
  if (!registry().graphs.contains(graph)) return error(cudaErrorInvalidValue, "no such graph");
  registry().executables.insert(*executable = new CUgraphExec_st{graph->recording});
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  std::shared_ptr<const Recording> recording;
  bool early = false;
  {
    std::lock_guard lock(registry().mutex);
    if (!registry().executables.contains(executable)) return error(cudaErrorInvalidValue, "no such graph");
    recording = executable->recording;
    early = executable->early = !executable->early;
  }
  return enqueue(stream, [recording, early] { return recording->run(early); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return destroy(registry().graphs, graph);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return destroy(registry().executables, executable);
}
