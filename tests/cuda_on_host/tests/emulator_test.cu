// What the emulator adds to the language: schedules, shared memory that starts as NaN, errors instead of
// hangs.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cuda/launch.cuh"
#include "tests/cuda_on_host/schedules.h"
#include "tests/cuda_on_host/tests/device_array.h"

namespace ssn::kernels {
namespace {

using cuda_on_host::every_schedule;

/// Counts the threads that ran before this one, of its block and of all blocks.
__global__ void order_of_threads(int* clock, int* when) {
  when[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(clock, 1);
}

std::vector<int> order_now() {
  const DeviceArray<int> clock(std::vector<int>{0}), when(96);
  launch(cuda_queue(), "order", order_of_threads, 3, 32, 0, clock.data(), when.data());
  return when.values();
}

TEST(Emulator, Schedules) {
  const auto saved = cuda_on_host::schedule();
  cuda_on_host::schedule() = {cuda_on_host::Schedule::forward, 1};
  const std::vector<int> forward = order_now();
  cuda_on_host::schedule() = {cuda_on_host::Schedule::reverse, 1};
  const std::vector<int> reverse = order_now();
  for (int i = 0; i < 96; ++i) ASSERT_TRUE(forward[i] == i && reverse[i] == 95 - i) << i;
  cuda_on_host::schedule() = {cuda_on_host::Schedule::random, 1};
  const std::vector<int> one = order_now(), again = order_now();
  cuda_on_host::schedule() = {cuda_on_host::Schedule::random, 2};
  const std::vector<int> two = order_now();
  cuda_on_host::schedule() = saved;
  EXPECT_EQ(one, again);
  EXPECT_NE(one, two);
  EXPECT_NE(one, forward);
}

/// Reads shared memory before anyone has written it.
template <class T>
__global__ void unwritten(T* y) {
  __shared__ T fixed[32];
  SSN_DYNAMIC_SHARED(T, dynamic);
  y[threadIdx.x] = fixed[threadIdx.x];
  y[threadIdx.x + 32] = dynamic[threadIdx.x];
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 1;
}

TEST(Emulator, SharedMemoryStartsAsNaN) {
  for (int launches = 0; launches < 2; ++launches) {
    const DeviceArray<float> y(64);
    try {
      launch(cuda_queue(), "unwritten", unwritten<float>, 2, 32, 32 * sizeof(float), y.data());
      for (float v : y.values()) ASSERT_TRUE(std::isnan(v));
    } catch (const Error& e) {  // the race check reports the read itself
      ASSERT_NE(std::string(e.what()).find("read of shared memory that this block never wrote"),
                std::string::npos)
          << e.what();
    }
  }
}

__global__ void half_at_barrier(int* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 1;
}

TEST(Emulator, LaunchesGoOnAfterAFailedOne) {
  every_schedule([] {
    const DeviceArray<int> y(64);
    std::string message;
    try {
      launch(cuda_queue(), "half", half_at_barrier, 1, 64, 0, y.data());
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_EQ(message.find("[half] cudaErrorLaunchFailure: __syncthreads at "), 0u) << message;
    EXPECT_NE(message.find("reached by 32 of 64 threads"), std::string::npos) << message;
    EXPECT_EQ(order_now().size(), 96u);
  });
}

/// Work that is done late fails late: where it is waited for.
TEST(Emulator, LateFailuresArriveWhereTheyAreWaitedFor) {
  const DeviceArray<int> y(64);
  memory::synchronize(cuda_queue());
  cuda_on_host::streams() = cuda_on_host::Streams::late;
  launch(cuda_queue(), "half", half_at_barrier, 1, 64, 0, y.data());
  std::string message;
  try {
    memory::synchronize(cuda_queue());
  } catch (const Error& e) {
    message = e.what();
  }
  cuda_on_host::streams() = cuda_on_host::Streams::prompt;
  EXPECT_EQ(message.find("[synchronize] cudaErrorLaunchFailure: __syncthreads at "), 0u) << message;
}

}  // namespace
}  // namespace ssn::kernels
