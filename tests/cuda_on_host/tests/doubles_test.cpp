// What the doubles of CUDA's runtime and of NCCL do with streams, events and devices, and what they refuse.
// There are two devices.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_host/tests/stream_objects.h"

namespace {

using namespace cuda_on_host::test;

TEST(Streams, WorkIsDoneWhenItIsWaitedFor) {
  const Word x, y;
  const Late late;
  const Stream a, b;
  cudaMemsetAsync(x.at, 1, 4, a.handle);
  cudaMemsetAsync(y.at, 1, 4, b.handle);
  EXPECT_EQ(x.value(), 0u);
  EXPECT_EQ(cudaStreamSynchronize(a.handle), cudaSuccess);
  EXPECT_EQ(x.value(), 0x01010101u);
  EXPECT_EQ(y.value(), 0u);
  EXPECT_EQ(cudaStreamQuery(b.handle), cudaErrorNotReady) << "a look does not wait";
  EXPECT_EQ(y.value(), 0u);
  EXPECT_EQ(cudaStreamQuery(b.handle), cudaSuccess) << "but who looks again finds it done";
  EXPECT_EQ(y.value(), 0x01010101u);
  cudaGetLastError();
}

/// The same program with and without the wait for the event.
unsigned copied(bool waits) {
  const Word from, to;
  const Event event;
  const Late late;
  const Stream a, b;
  cudaMemsetAsync(from.at, 1, 4, a.handle);
  cudaEventRecord(event.handle, a.handle);
  cudaMemsetAsync(from.at, 2, 4, a.handle);  // behind the event
  if (waits) cudaStreamWaitEvent(b.handle, event.handle);
  cudaEventRecord(event.handle, a.handle);  // it was waited for as it was
  cudaMemcpyAsync(to.at, from.at, 4, cudaMemcpyDeviceToDevice, b.handle);
  EXPECT_EQ(cudaStreamSynchronize(b.handle), cudaSuccess);
  return to.value();
}
TEST(Streams, AMissingWaitShowsInTheResult) {
  EXPECT_EQ(copied(true), 0x01010101u);
  EXPECT_EQ(copied(false), 0u);
}

TEST(Streams, FreeingMemoryWaitsForTheDevice) {
  const Word y;
  const Late late;
  const Stream a;
  unsigned* x = nullptr;
  cudaMalloc(&x, 4);
  cudaMemsetAsync(x, 3, 4, a.handle);
  cudaMemcpyAsync(y.at, x, 4, cudaMemcpyDeviceToDevice, a.handle);
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_EQ(y.value(), 0x03030303u);
}

TEST(Streams, WhatIsWrongIsRefused) {
  const Stream stream;
  const Event event;
  EXPECT_TRUE(refused(cudaStreamWaitEvent(stream.handle, event.handle), "never recorded"));
  EXPECT_TRUE(refused(cudaEventRecord(nullptr, stream.handle), "no such event"));
  EXPECT_TRUE(refused(cudaSetDevice(2), "device 2 of 2"));
  cudaSetDevice(1);
  const Word elsewhere;
  EXPECT_TRUE(
      refused(cudaMemsetAsync(elsewhere.at, 1, 4, stream.handle), "is of device 0, the current one is 1"));
  cudaSetDevice(0);
  cudaStream_t gone = nullptr;
  cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking);
  cudaStreamDestroy(gone);
  EXPECT_TRUE(refused(cudaStreamSynchronize(gone), "no such stream"));
  cudaGetLastError();
}

/// The text of what was refused, "" if it was not.
std::string text_of(ncclResult_t result) {
  return result == ncclSuccess ? "" : ncclGetLastError(nullptr);
}

/// A communicator of one rank on device 0.
class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(ncclCommInitRank(&comm_, 1, id, 0), ncclSuccess);
  }
  void TearDown() override { EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess); }
  std::string refusal(const void* from, void* to, std::size_t count, ncclDataType_t type = ncclFloat32) {
    return text_of(ncclAllReduce(from, to, count, type, ncclSum, comm_, stream_.handle));
  }

  ncclComm_t comm_ = nullptr;
  Stream stream_;
  Word x_;
};
void expect_part(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(Nccl, RefusesWrongMemory) {
  EXPECT_EQ(refusal(x_.at, x_.at, 1), "");
  std::array<float, 4> host{};
  expect_part("not of any", refusal(host.data(), host.data(), 4));
  expect_part("8 bytes at", refusal(x_.at, x_.at, 2));
  cudaSetDevice(1);
  const Word elsewhere;
  cudaSetDevice(0);
  expect_part("of device 1", refusal(elsewhere.at, elsewhere.at, 1));
  float* all = nullptr;
  cudaMalloc(&all, 16);
  expect_part("overlap", refusal(all, all + 1, 2));
  cudaFree(all);
}

TEST_F(Nccl, RefusesWrongHandles) {
  expect_part("type 3", refusal(x_.at, x_.at, 1, static_cast<ncclDataType_t>(3)));
  const auto reduce = [&](ncclComm_t comm, cudaStream_t stream) {
    return text_of(ncclAllReduce(x_.at, x_.at, 1, ncclFloat32, ncclSum, comm, stream));
  };
  expect_part("no such communicator", reduce(nullptr, stream_.handle));
  expect_part("no such communicator", reduce(reinterpret_cast<ncclComm_t>(&x_), stream_.handle));
  expect_part("no such stream", reduce(comm_, reinterpret_cast<cudaStream_t>(&x_)));
  cudaSetDevice(1);
  expect_part("the communicator is of device 0", reduce(comm_, nullptr));
  cudaSetDevice(0);
  cudaGetLastError();
}

TEST_F(Nccl, RefusesAnEndBeforeTheSumsAreDone) {
  const Late late;
  EXPECT_EQ(refusal(x_.at, x_.at, 1), "");
  expect_part("1 sums are not done", text_of(ncclCommDestroy(comm_)));
  cudaStreamSynchronize(stream_.handle);
}

TEST_F(Nccl, FindsMemoryThatWasFreedTooEarly) {
  const Late late;
  float* memory = nullptr;
  cudaMalloc(&memory, 4);
  EXPECT_EQ(refusal(memory, memory, 1), "");
  cudaFreeAsync(memory, nullptr);  // not on the stream that sums
  EXPECT_NE(cudaStreamSynchronize(stream_.handle), cudaSuccess);
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm_, &error), ncclSuccess);
  EXPECT_EQ(error, ncclInvalidArgument);
  cudaGetLastError();
}

/// What each of two ranks, threads of their own, is told; the devices are theirs.
template <class F>
std::vector<std::string> two_ranks(std::array<int, 2> devices, F&& body) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::string> texts(2);
  const auto run = [&](int rank) {
    cudaSetDevice(devices[static_cast<std::size_t>(rank)]);
    ncclComm_t comm = nullptr;
    std::string& text = texts[static_cast<std::size_t>(rank)];
    text = text_of(ncclCommInitRank(&comm, 2, id, rank));
    if (text.empty()) text = body(comm, rank);
    if (comm) ncclCommDestroy(comm);
  };
  std::thread other(run, 1);
  std::thread(run, 0).join();
  other.join();
  return texts;
}

TEST(NcclRanks, Sum) {
  const auto texts = two_ranks({0, 1}, [](ncclComm_t comm, int rank) {
    constexpr std::size_t n = 40000;  // several pieces
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i + static_cast<std::size_t>(rank));
    float* x = nullptr;
    cudaMalloc(&x, n * sizeof *x);
    cudaMemcpy(x, values.data(), n * sizeof *x, cudaMemcpyHostToDevice);
    std::string text = text_of(ncclAllReduce(x, x, n, ncclFloat32, ncclSum, comm, nullptr));
    cudaMemcpy(values.data(), x, n * sizeof *x, cudaMemcpyDeviceToHost);
    cudaFree(x);
    for (std::size_t i = 0; i < n; ++i)
      if (values[i] != static_cast<float>(2 * i + 1)) text += "wrong";
    return text;
  });
  EXPECT_EQ(texts, (std::vector<std::string>{"", ""}));
}

TEST(NcclRanks, AreToldThatTheyDiffer) {
  const auto texts = two_ranks({0, 1}, [](ncclComm_t comm, int rank) {
    const Word x;
    return text_of(ncclAllReduce(x.at, x.at, rank == 0 ? 1 : 2, rank == 0 ? ncclFloat32 : ncclBfloat16,
                                 ncclSum, comm, nullptr));
  });
  for (const std::string& text : texts) expect_part("of type 7", text);
}

void set(const Word& x, float value) {
  cudaMemcpy(x.at, &value, sizeof value, cudaMemcpyHostToDevice);
}
float float_in(const Word& x) {
  return std::bit_cast<float>(x.value());
}

/// A graph of a sum on a second stream, which events fork from the captured one and join to it.
struct RecordedSum {
  cudaGraphExec_t handle = nullptr;
  cudaError_t end = cudaSuccess;  // of the capture

  RecordedSum(ncclComm_t comm, const Word& x, bool joins = true) {
    const Stream a, b;
    const Event forked, joined;
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(a.handle, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(forked.handle, a.handle);
    cudaStreamWaitEvent(b.handle, forked.handle);
    EXPECT_EQ(ncclAllReduce(x.at, x.at, 1, ncclFloat32, ncclSum, comm, b.handle), ncclSuccess);
    cudaEventRecord(joined.handle, b.handle);
    if (joins) cudaStreamWaitEvent(a.handle, joined.handle);
    end = cudaStreamEndCapture(a.handle, &graph);
    if (end != cudaSuccess) return;
    cudaGraphInstantiate(&handle, graph, 0);
    cudaGraphDestroy(graph);
  }
  RecordedSum(const RecordedSum&) = delete;
  ~RecordedSum() { drop(); }
  void drop() {
    if (handle) cudaGraphExecDestroy(handle);
    handle = nullptr;
  }
};

TEST(NcclRanks, RepeatWhatTheyRecorded) {
  const auto texts = two_ranks({0, 1}, [](ncclComm_t comm, int rank) {
    const Word x;
    set(x, static_cast<float>(rank + 1));
    const RecordedSum sum(comm, x);
    std::string text = float_in(x) == static_cast<float>(rank + 1) ? "" : "done while it was recorded";
    for (const float want : {3.0F, 6.0F}) {
      if (cudaGraphLaunch(sum.handle, nullptr) != cudaSuccess) text += "refused";
      if (float_in(x) != want) text += "wrong";
    }
    return text;
  });
  EXPECT_EQ(texts, (std::vector<std::string>{"", ""}));
}

TEST(NcclRanks, RepeatAndQueueTogether) {
  const auto texts = two_ranks({0, 1}, [](ncclComm_t comm, int rank) {
    const Word x;
    const RecordedSum sum(comm, x);
    if (rank == 1) return text_of(ncclAllReduce(x.at, x.at, 1, ncclFloat32, ncclSum, comm, nullptr));
    return std::string(cudaGetErrorString(cudaGraphLaunch(sum.handle, nullptr)));
  });
  for (const std::string& text : texts) expect_part("what one rank records or repeats all must", text);
  cudaGetLastError();
}

TEST_F(Nccl, MustBeJoinedToWhatIsRecorded) {
  const RecordedSum sum(comm_, x_, false);
  EXPECT_EQ(sum.end, cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(refusal(x_.at, x_.at, 1), "") << "it goes on without";
  cudaGetLastError();
}

TEST_F(Nccl, EndsAfterTheGraphsThatHoldItsSums) {
  RecordedSum sum(comm_, x_);
  expect_part("graphs hold sums", text_of(ncclCommDestroy(comm_)));
  ncclUniqueId id;
  ncclComm_t other = nullptr;
  ncclGetUniqueId(&id);
  ASSERT_EQ(ncclCommInitRank(&other, 1, id, 0), ncclSuccess);
  std::optional<RecordedSum> others(std::in_place, other, x_);
  std::atomic<bool> back = false;
  std::thread aborts([&] {
    EXPECT_EQ(ncclCommAbort(other), ncclSuccess);
    back = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(back);
  others.reset();
  aborts.join();
}

TEST(NcclRanks, MustHaveTheirOwnDevices) {
  for (const std::string& text : two_ranks({1, 1}, [](ncclComm_t, int) { return std::string("joined"); }))
    expect_part("Duplicate GPU detected: ranks 0 and 1 both on CUDA device 0000:01:00.0", text);
}

/// Pinned memory, written after a copy from it was queued, or given back.
TEST(Pinned, IsNotChangedBeforeItsCopyIsDone) {
  const Word x;
  const Late late;
  const Stream a;
  for (const bool waits : {true, false})
    for (const bool frees : {true, false}) {
      const Event copied;
      unsigned* host = nullptr;
      ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&host), 4, cudaHostAllocDefault), cudaSuccess);
      *host = 7;
      cudaMemcpyAsync(x.at, host, 4, cudaMemcpyHostToDevice, a.handle);
      cudaEventRecord(copied.handle, a.handle);
      if (waits) cudaEventSynchronize(copied.handle);
      if (frees) cudaFreeHost(host);
      if (!frees) *host = 8;
      const cudaError_t result = cudaStreamSynchronize(a.handle);
      const char* text = frees ? "was freed before" : "was written before";
      EXPECT_TRUE(waits ? result == cudaSuccess : refused(result, text));
      if (!frees) cudaFreeHost(host);
    }
  cudaGetLastError();
}

TEST(Leaks, EndTheProgramWithAnError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto leave_event = [] {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    std::exit(0);
  };
  EXPECT_EXIT(leave_event(), testing::ExitedWithCode(1), "1 events were not destroyed");
  const auto leave_communicator = [] {
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 1, id, 0);
    std::exit(0);
  };
  EXPECT_EXIT(leave_communicator(), testing::ExitedWithCode(1), "1 NCCL communicators were not destroyed");
}

}  // namespace
