// What barriers, shuffles, votes and atomics mean. Compiled by nvcc too, so that a GPU can confirm it.
#include <gtest/gtest.h>

#include "runtime/cuda/launch.cuh"
#include "tests/cuda_on_host/schedules.h"
#include "tests/cuda_on_host/tests/device_array.h"
#include "tests/cuda_on_host/tests/gpu_test.h"

namespace ssn::kernels {
namespace {

using cuda_on_host::every_schedule;
class DeviceLanguage : public GpuTest {};
constexpr unsigned kAll = 0xffffffffu;

/// y (64 threads, 10).
__global__ void shuffles(int* y) {
  const int t = static_cast<int>(threadIdx.x), lane = t % 32;
  int* out = y + t * 10;
  out[0] = __shfl_sync(kAll, t, 5);
  out[1] = __shfl_sync(kAll, t, lane + 1, 8);
  out[2] = __shfl_up_sync(kAll, t, 3);
  out[3] = __shfl_up_sync(kAll, t, 1, 4);
  out[4] = __shfl_down_sync(kAll, t, 3);
  out[5] = __shfl_down_sync(kAll, t, 1, 4);
  out[6] = __shfl_xor_sync(kAll, t, 16);
  out[7] = __shfl_xor_sync(kAll, t, 5, 8);
  out[8] = static_cast<int>(__ballot_sync(kAll, lane % 3 == 0));
  const int any = __any_sync(kAll, t == 40);
  const int all = __all_sync(kAll, t < 32);
  out[9] = any * 2 + all;
}

TEST_F(DeviceLanguage, ShufflesAndVotes) {
  every_schedule([] {
    const DeviceArray<int> y(640);
    launch(cuda_queue(), "shuffles", shuffles, 1, 64, 0, y.data());
    const std::vector<int> v = y.values();
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32, warp = t - lane;
      const std::vector<int> expected = {warp + 5,
                                         t - t % 8 + (lane + 1) % 8,
                                         lane < 3 ? t : t - 3,
                                         t % 4 ? t - 1 : t,
                                         lane + 3 > 31 ? t : t + 3,
                                         t % 4 == 3 ? t : t + 1,
                                         t ^ 16,
                                         t ^ 5,
                                         0x49249249,
                                         t < 32 ? 1 : 2};
      ASSERT_EQ(std::vector<int>(v.begin() + t * 10, v.begin() + t * 10 + 10), expected) << "thread " << t;
    }
  });
}

/// A half warp sums its values; the other does not take part. Then the whole warp meets again.
__global__ void half_warps(double* y) {
  const int t = static_cast<int>(threadIdx.x), lane = t % 32;
  double v = t;
  if (lane < 16) {
    for (int d = 8; d > 0; d /= 2) v += __shfl_xor_sync(0xffffu, v, d);
  }
  __syncwarp();
  y[t] = __shfl_sync(kAll, v, lane ^ 16);
}

TEST_F(DeviceLanguage, PartOfAWarp) {
  every_schedule([] {
    const DeviceArray<double> y(96);
    launch(cuda_queue(), "half_warps", half_warps, 1, 96, 0, y.data());
    const std::vector<double> v = y.values();
    for (int t = 0; t < 96; ++t)
      ASSERT_EQ(v[t], t % 32 < 16 ? t + 16 : t / 32 * 32 * 16 + 120) << "thread " << t;
  });
}

__global__ void block_votes(int* y) {
  const int t = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const int count = __syncthreads_count(t % 3 == 0);
  const int some = __syncthreads_or(t == 7);
  const int all = __syncthreads_and(t < 100);
  if (t == 59)
    y[blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)] = count * 100 + some * 10 + all;
}

TEST_F(DeviceLanguage, BlockVotesInThreeDimensions) {
  every_schedule([] {
    const DeviceArray<int> y(24);
    launch(cuda_queue(), "block_votes", block_votes, dim3(2, 3, 4), dim3(3, 4, 5), 0, y.data());
    for (int v : y.values()) ASSERT_EQ(v, 20 * 100 + 11);
  });
}

__constant__ float coefficients[4];

__global__ void atomics(float* y, double* d, unsigned long long* u, int* i) {
  const int t = static_cast<int>(threadIdx.x);
  y[t] = coefficients[t % 4];
  atomicAdd(d, 1.0);
  atomicAdd(u, 1ull);
  atomicMax(i, t);
  atomicMin(i + 1, -t);
  if (t == 3) i[2] = atomicCAS(i + 3, 0, 9) + atomicExch(i + 4, 5);
}

TEST_F(DeviceLanguage, AtomicsAndConstants) {
  const float c[4] = {1, 2, 3, 4};
  cuda_check(cudaMemcpyToSymbol(coefficients, c, sizeof c), "constants");
  every_schedule([&] {
    const DeviceArray<float> y(33);
    const DeviceArray<double> d(std::vector<double>{0});
    const DeviceArray<unsigned long long> u(std::vector<unsigned long long>{0});
    const DeviceArray<int> i(std::vector<int>(5, 0));
    launch(cuda_queue(), "atomics", atomics, 1, 33, 0, y.data(), d.data(), u.data(), i.data());
    for (int t = 0; t < 33; ++t) ASSERT_EQ(y.values()[t], c[t % 4]);
    EXPECT_EQ(d.values()[0], 33);
    EXPECT_EQ(u.values()[0], 33u);
    EXPECT_EQ(i.values(), (std::vector<int>{32, -32, 0, 9, 5}));
  });
}

/// Scans of warps in shared memory, ordered by __syncwarp and barriers only: the race check must stay silent.
__global__ void ordered(const int* x, int* y) {
  __shared__ int sums[64], counts[4];
  const int t = static_cast<int>(threadIdx.x), lane = t % 32;
  if (t < 4) counts[t] = 0;
  sums[t] = x[t];
  __syncthreads();
  for (int d = 1; d < 32; d *= 2) {
    const int v = lane >= d ? sums[t - d] : 0;
    __syncwarp();
    sums[t] += v;
    __syncwarp();
  }
  atomicAdd(&counts[t % 4], 1);
  __syncthreads();
  y[t] = sums[63 - t] * 100 + counts[t % 4];
}

TEST_F(DeviceLanguage, OrderedByBarriers) {
  std::vector<int> x(64);
  for (int i = 0; i < 64; ++i) x[i] = i % 7;
  every_schedule([&] {
    const DeviceArray<int> input(x), y(64);
    launch(cuda_queue(), "ordered", ordered, 1, 64, 0, input.data(), y.data());
    const std::vector<int> v = y.values();
    for (int t = 0; t < 64; ++t) {
      int sum = 0;
      for (int i = (63 - t) / 32 * 32; i <= 63 - t; ++i) sum += x[i];
      ASSERT_EQ(v[t], sum * 100 + 16) << "thread " << t;
    }
  });
}

}  // namespace
}  // namespace ssn::kernels
