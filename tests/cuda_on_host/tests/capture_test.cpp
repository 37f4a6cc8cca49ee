// What the doubles of CUDA's runtime do with streams that are captured, and what they refuse.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/cuda_on_host/tests/stream_objects.h"

namespace {

using namespace cuda_on_host::test;

cudaError_t begin(const Stream& stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  return cudaStreamBeginCapture(stream.handle, mode);
}

/// A captured graph, made executable.
struct Captured {
  cudaGraphExec_t handle = nullptr;
  template <class F>
  Captured(const Stream& stream, F&& work) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(begin(stream), cudaSuccess);
    work();
    EXPECT_EQ(cudaStreamEndCapture(stream.handle, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&handle, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  Captured(const Captured&) = delete;
  ~Captured() { EXPECT_EQ(cudaGraphExecDestroy(handle), cudaSuccess); }
};

TEST(Capture, RecordsWorkAndRepeatsItWithTheSameArguments) {
  const Word from, to;
  const Stream a;
  unsigned value = 1;
  const Captured graph(a, [&] {
    cudaMemcpyAsync(to.at, from.at, 4, cudaMemcpyDeviceToDevice, a.handle);
    cudaMemsetAsync(from.at, static_cast<int>(value), 4, a.handle);
  });
  EXPECT_EQ(from.value(), 0u) << "nothing is done while it is recorded";
  value = 2;
  EXPECT_EQ(cudaGraphLaunch(graph.handle, a.handle), cudaSuccess);
  EXPECT_EQ(from.value(), 0x01010101u);
  EXPECT_EQ(to.value(), 0u);
  const Late late;
  EXPECT_EQ(cudaGraphLaunch(graph.handle, a.handle), cudaSuccess);
  EXPECT_EQ(to.value(), 0u) << "it is done when it is waited for";
  EXPECT_EQ(cudaStreamSynchronize(a.handle), cudaSuccess);
  EXPECT_EQ(to.value(), 0x01010101u) << "the memory's contents are those of each time";
}

/// Work of a second stream, joined by events; with and without the first's wait for its last piece.
TEST(Capture, TakesInStreamsThatWaitForIt) {
  const Word x, y;
  const Stream a, b;
  const Event forked, joined;
  const auto fork = [&](bool joins) {
    cudaMemsetAsync(x.at, 1, 4, a.handle);
    cudaEventRecord(forked.handle, a.handle);
    EXPECT_EQ(cudaStreamWaitEvent(b.handle, forked.handle), cudaSuccess);
    cudaMemcpyAsync(y.at, x.at, 4, cudaMemcpyDeviceToDevice, b.handle);
    cudaEventRecord(joined.handle, b.handle);
    if (joins) cudaStreamWaitEvent(a.handle, joined.handle);
    cudaMemsetAsync(x.at, 2, 4, a.handle);
  };
  {
    const Captured graph(a, [&] { fork(true); });
    cudaGraphLaunch(graph.handle, a.handle);
    EXPECT_EQ(y.value(), 0x01010101u);
    EXPECT_EQ(x.value(), 0x02020202u);
  }
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(begin(a), cudaSuccess);
  fork(false);
  EXPECT_TRUE(refused(cudaStreamEndCapture(a.handle, &graph), "another stream are not waited for"));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaMemsetAsync(x.at, 3, 4, b.handle), cudaSuccess) << "both streams are free again";
  EXPECT_EQ(x.value(), 0x03030303u);
  cudaGetLastError();
}

/// A second stream that comes after too little: it reads either value.
TEST(Capture, DoesAnotherStreamsWorkLateAndEarlyInTurns) {
  const Word x, y;
  const Stream a, b;
  const Event forked, joined;
  const Captured graph(a, [&] {
    cudaMemsetAsync(x.at, 1, 4, a.handle);
    cudaEventRecord(forked.handle, a.handle);
    cudaStreamWaitEvent(b.handle, forked.handle);
    cudaMemsetAsync(x.at, 2, 4, a.handle);
    cudaMemcpyAsync(y.at, x.at, 4, cudaMemcpyDeviceToDevice, b.handle);
    cudaEventRecord(joined.handle, b.handle);
    cudaStreamWaitEvent(a.handle, joined.handle);
  });
  for (const unsigned want : {0x02020202u, 0x01010101u, 0x02020202u}) {
    EXPECT_EQ(cudaGraphLaunch(graph.handle, a.handle), cudaSuccess);
    EXPECT_EQ(y.value(), want);
  }
}

/// A call that is refused makes the capture void.
template <class F>
void expect_void(const char* text, F&& call) {
  const Stream stream;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(begin(stream), cudaSuccess);
  EXPECT_TRUE(refused(call(stream), text)) << text;
  EXPECT_EQ(cudaStreamEndCapture(stream.handle, &graph), cudaErrorStreamCaptureInvalidated) << text;
  EXPECT_EQ(graph, nullptr);
  cudaGetLastError();
}

TEST(Capture, RefusesWaitsAndMemory) {
  const Stream other;
  const Event event;
  cudaEventRecord(event.handle, other.handle);
  void *host = nullptr, *device = nullptr;
  cudaHostAlloc(&host, 4, cudaHostAllocDefault);
  cudaMalloc(&device, 4);
  expect_void("cudaStreamSynchronize is not allowed",
              [](const Stream& s) { return cudaStreamSynchronize(s.handle); });
  expect_void("cudaStreamSynchronize is not allowed",
              [&](const Stream&) { return cudaStreamSynchronize(other.handle); });
  expect_void("cudaStreamQuery", [](const Stream& s) { return cudaStreamQuery(s.handle); });
  expect_void("cudaEventSynchronize", [&](const Stream&) { return cudaEventSynchronize(event.handle); });
  expect_void("cudaDeviceSynchronize", [](const Stream&) { return cudaDeviceSynchronize(); });
  expect_void("cudaMalloc", [](const Stream&) {
    void* p = nullptr;
    return cudaMalloc(&p, 4);
  });
  expect_void("cudaFree is", [&](const Stream&) { return cudaFree(device); });
  expect_void("cudaHostAlloc", [](const Stream&) {
    void* p = nullptr;
    return cudaHostAlloc(&p, 4, cudaHostAllocDefault);
  });
  expect_void("cudaFreeHost", [&](const Stream&) { return cudaFreeHost(host); });
  expect_void("null stream", [&](const Stream&) { return cudaMemset(device, 0, 4); });
  cudaFree(device);
  cudaFreeHost(host);
}

TEST(Capture, RefusesCopiesOfMemoryThatMayMove) {
  const Word x;
  unsigned pageable = 1;
  expect_void("pageable", [&](const Stream& s) {
    return cudaMemcpyAsync(x.at, &pageable, 4, cudaMemcpyHostToDevice, s.handle);
  });
  unsigned* pinned = nullptr;
  cudaHostAlloc(reinterpret_cast<void**>(&pinned), 4, cudaHostAllocDefault);
  *pinned = 1;
  const Stream a;
  {
    const Captured graph(a, [&] { cudaMemcpyAsync(x.at, pinned, 4, cudaMemcpyHostToDevice, a.handle); });
    *pinned = 5;
    cudaGraphLaunch(graph.handle, a.handle);
    EXPECT_EQ(x.value(), 5u) << "pinned memory is read when it is repeated";
  }
  cudaFreeHost(pinned);
}

TEST(Capture, RefusesEventsFromOutside) {
  const Stream other;
  const Event event, inside;
  cudaEventRecord(event.handle, other.handle);
  expect_void("outside of the stream's capture",
              [&](const Stream& s) { return cudaStreamWaitEvent(s.handle, event.handle); });
  const Stream a;
  const Captured graph(a, [&] { cudaEventRecord(inside.handle, a.handle); });
  EXPECT_TRUE(refused(cudaStreamWaitEvent(other.handle, inside.handle), "capture that has ended"));
  EXPECT_TRUE(refused(cudaEventSynchronize(inside.handle), "recorded in a capture"));
  cudaGetLastError();
}

TEST(Capture, RefusesWrongBeginningsAndEnds) {
  const Stream a, b;
  const Event event, joined;
  cudaGraph_t graph = nullptr;
  EXPECT_TRUE(refused(cudaStreamEndCapture(a.handle, &graph), "is not captured"));
  EXPECT_TRUE(refused(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), "null stream"));
  ASSERT_EQ(begin(a), cudaSuccess);
  EXPECT_TRUE(refused(cudaStreamBeginCapture(a.handle, cudaStreamCaptureModeGlobal), "captured already"));
  cudaEventRecord(event.handle, a.handle);
  cudaStreamWaitEvent(b.handle, event.handle);
  EXPECT_TRUE(refused(cudaStreamEndCapture(b.handle, &graph), "begun on another stream"));
  cudaEventRecord(joined.handle, b.handle);
  cudaStreamWaitEvent(a.handle, joined.handle);
  std::thread([&] {
    EXPECT_TRUE(refused(cudaStreamEndCapture(a.handle, &graph), "by another thread"));
  }).join();
  EXPECT_EQ(cudaStreamEndCapture(a.handle, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_TRUE(refused(cudaGraphDestroy(graph), "no such graph"));
  cudaGraphExec_t executable = nullptr;
  EXPECT_TRUE(refused(cudaGraphInstantiate(&executable, graph, 0), "no such graph"));
  EXPECT_TRUE(refused(cudaGraphLaunch(executable, a.handle), "no such graph"));
  cudaGetLastError();
}

/// Other threads go on beside a capture in thread-local mode, and this one where it says so.
TEST(Capture, LetsOthersTakeMemory) {
  const Stream a;
  void *mine = nullptr, *others = nullptr;
  const auto other_takes = [&] {
    cudaError_t result = cudaSuccess;
    std::thread([&] { result = cudaMalloc(&others, 4); }).join();
    return result;
  };
  {
    const Captured graph(a, [&] {
      EXPECT_EQ(other_takes(), cudaSuccess);
      auto mode = cudaStreamCaptureModeRelaxed;
      cudaThreadExchangeStreamCaptureMode(&mode);
      EXPECT_EQ(cudaMalloc(&mine, 4), cudaSuccess);
      cudaThreadExchangeStreamCaptureMode(&mode);
    });
  }
  cudaFree(mine);
  cudaFree(others);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(begin(a, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(other_takes(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a.handle, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST(Capture, MemoryThatIsGoneIsMissedAtTheNextRepetition) {
  const Word from;
  const Stream a;
  void* to = nullptr;
  cudaMalloc(&to, 4);
  const Captured graph(a, [&] { cudaMemcpyAsync(to, from.at, 4, cudaMemcpyDeviceToDevice, a.handle); });
  EXPECT_EQ(cudaGraphLaunch(graph.handle, a.handle), cudaSuccess);
  cudaFree(to);
  EXPECT_NE(cudaGraphLaunch(graph.handle, a.handle), cudaSuccess);
  cudaGetLastError();
}

TEST(Capture, GraphsThatAreLeftEndTheProgramWithAnError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto leave_graph = [] {
    const Stream a;
    cudaGraph_t graph = nullptr;
    begin(a);
    cudaStreamEndCapture(a.handle, &graph);
    std::exit(0);
  };
  EXPECT_EXIT(leave_graph(), testing::ExitedWithCode(1), "1 graphs were not destroyed");
}

}  // namespace
