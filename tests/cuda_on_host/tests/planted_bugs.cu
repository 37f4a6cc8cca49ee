// Kernels with one bug each, to show that the emulator and the sanitizers notice them: planted_bugs NAME says
// what was noticed.
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>

#include "kernels/cuda/reduce.cuh"
#include "tests/cuda_on_host/schedules.h"
#include "tests/cuda_on_host/tests/device_array.h"

namespace ssn::kernels {
namespace {

template <class... P, class... A>
void run(void (*kernel)(P...), unsigned grid, unsigned block, std::size_t shared, A... arguments) {
  launch(cuda_queue(), "planted", kernel, grid, block, shared, arguments...);
}

// Memory.

/// No bounds check: the last block writes past the end.
__global__ void global_overflow(float* y) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}
__global__ void shared_overflow(float* y) {
  __shared__ float b[63];
  b[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = b[63 - threadIdx.x];
}
__global__ void dynamic_overflow(float* y) {
  SSN_DYNAMIC_SHARED(float, b);
  b[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = b[63 - threadIdx.x];
}
__global__ void local_overflow(float* y, int shift) {
  float a[4] = {1, 2, 3, 4};
  y[threadIdx.x] = a[(static_cast<int>(threadIdx.x) + shift) % 8];
}
__global__ void fill(float* y) {
  y[threadIdx.x] = 1;
}
__global__ void copy(float* y, const float* x) {
  y[threadIdx.x] = x[threadIdx.x];
}
/// Adds to memory that cudaMalloc has not cleared.
__global__ void add_one(float* y) {
  y[threadIdx.x] += 1;
}
__global__ void read_unwritten_shared(float* y) {
  __shared__ float b[64];
  if (threadIdx.x < 40) b[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = b[threadIdx.x];
}
__global__ void misaligned(const float* x, float* y) {
  reinterpret_cast<float4*>(y)[threadIdx.x] = reinterpret_cast<const float4*>(x + 1)[threadIdx.x];
}
__global__ void index_overflow(float* y, int stride) {
  const int i = (static_cast<int>(threadIdx.x) + 60) * stride;
  y[i < 0 ? 0 : i % 64] = 1;
}
/// Every thread reads a local variable of thread 0.
__global__ void foreign_local(int* y) {
  __shared__ const int* pointer;
  const int mine = static_cast<int>(threadIdx.x);
  if (threadIdx.x == 0) pointer = &mine;
  __syncthreads();
  y[threadIdx.x] = *pointer;
  __syncthreads();
}

// Order.

template <bool kBarrier>
__global__ void reverse(const int* x, int* y) {
  __shared__ int b[64];
  const int t = static_cast<int>(threadIdx.x);
  b[t] = x[t];
  if (kBarrier) __syncthreads();
  y[t] = b[63 - t];
}
/// No barrier either, but a thread reads its lower neighbour: in forward order the result is right.
__global__ void lower_neighbour(const int* x, int* y) {
  __shared__ int b[64];
  const int t = static_cast<int>(threadIdx.x);
  b[t] = x[t];
  y[t] = t ? b[t - 1] : x[0] - 1;
}
/// No second barrier in the loop: a warp may overwrite what another has not read yet.
__global__ void write_after_read(const float* x, float* y, int rounds) {
  __shared__ float parts[4];
  float sum = 0;
  for (int r = 0; r < rounds; ++r) {
    const float part = warp_reduce(x[r * 128 + static_cast<int>(threadIdx.x)], Sum{});
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    for (int i = 0; i < 4; ++i) sum += parts[i];
  }
  y[threadIdx.x] = sum;
}
/// No __syncwarp between the steps: lockstep is assumed.
__global__ void lockstep(const float* x, float* y) {
  __shared__ volatile float b[32];
  const int t = static_cast<int>(threadIdx.x);
  b[t] = x[t];
  for (int d = 16; d > 0; d /= 2) {
    if (t < d) b[t] = b[t] + b[t + d];
  }
  if (t == 0) y[0] = b[0];
}
__global__ void blocks_add(int* y) {
  if (threadIdx.x == 0) y[0] += 1;
}
/// Atomic, but a float sum depends on the order.
__global__ void float_atomic(const float* x, float* y) {
  atomicAdd(y, x[blockIdx.x * 64 + threadIdx.x]);
}

// Barriers and warp functions.

__global__ void conditional_barrier(int* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void two_barriers(int* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1;
}
__global__ void trip_count(int* y) {
  for (int i = 0; i < 1 + static_cast<int>(threadIdx.x) / 32; ++i) __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void early_return(int* y, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void shuffle_in_branch(float* y) {
  float v = 1;
  if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffffffu, v, 1);
  y[threadIdx.x] = v;
}
__global__ void partial_warp(float* y) {
  y[threadIdx.x] = warp_reduce(1.0f, Sum{});
}
__global__ void warp_against_block(float* y) {
  float v = 1;
  if (threadIdx.x % 32 < 16) {
    v = __shfl_down_sync(0xffffffffu, v, 1);
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = v;
}
__global__ void wrong_mask(float* y) {
  y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1.0f, 1);
}
__global__ void two_shuffles(float* y) {
  float v = 1;
  if (threadIdx.x < 16) {
    v = __shfl_xor_sync(0xffffffffu, v, 1);
  } else {
    v = __shfl_xor_sync(0xffffffffu, v, 2);
  }
  y[threadIdx.x] = v;
}

// A case runs one of them and returns whether the result is right.

std::vector<int> counting() {
  std::vector<int> v(64);
  std::iota(v.begin(), v.end(), 0);
  return v;
}
/// Runs a kernel that fills y (floats or integers, all `expected` if right) with one block of `threads`.
template <class T, class... A>
bool fills(void (*kernel)(T*, A...), T expected, unsigned threads, std::size_t shared, A... arguments) {
  const DeviceArray<T> y(threads);
  run(kernel, 1, threads, shared, y.data(), arguments...);
  return y.values() == std::vector<T>(threads, expected);
}
bool reverses(void (*kernel)(const int*, int*)) {
  const std::vector<int> x = counting();
  const DeviceArray<int> input(x), y(64);
  run(kernel, 1, 64, 0, input.data(), y.data());
  return y.values() == std::vector<int>(x.rbegin(), x.rend());
}
bool reads_lower() {
  const std::vector<int> x = counting();
  const DeviceArray<int> input(x), y(64);
  run(lower_neighbour, 1, 64, 0, input.data(), y.data());
  const std::vector<int> v = y.values();
  for (int i = 0; i < 64; ++i) {
    if (v[i] != i - 1) return false;
  }
  return true;
}
bool sums_rounds() {
  std::vector<float> x(128 * 5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i / 128 + 1);
  const DeviceArray<float> input(x), y(128);
  run(write_after_read, 1, 128, 0, input.data(), y.data(), 5);
  return y.values() == std::vector<float>(128, 128 * 15);
}
bool sums_in_lockstep() {
  const DeviceArray<float> input(std::vector<float>(32, 1)), y(1);
  run(lockstep, 1, 32, 0, input.data(), y.data());
  return y.values()[0] == 32;
}
/// Whether all schedules give the same bits.
bool sums_by_atomics() {
  static std::vector<float> first;
  std::vector<float> x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(i + 3);
  const DeviceArray<float> input(x), y(std::vector<float>{0});
  run(float_atomic, 8, 64, 0, input.data(), y.data());
  if (first.empty()) first = y.values();
  return same_bits(first, y.values());
}
bool blocks_count() {
  const DeviceArray<int> y(std::vector<int>{0});
  run(blocks_add, 8, 32, 0, y.data());
  return y.values()[0] == 8;
}
bool overflows() {
  const DeviceArray<float> y(100);
  run(global_overflow, 2, 64, 0, y.data());
  return y.values() == std::vector<float>(100, 1);
}
bool fills_freed() {
  float* p = nullptr;
  {
    const DeviceArray<float> y(64);
    p = y.data();
  }
  run(fill, 1, 64, 0, p);
  return true;
}
bool copies_from_host() {
  static const std::vector<float> host(64, 1);
  return fills(copy, 1.0f, 64, 0, host.data());
}
bool copies_misaligned() {
  const DeviceArray<float> x(std::vector<float>(65, 1)), y(64);
  run(misaligned, 1, 16, 0, x.data(), y.data());
  return y.values() == std::vector<float>(64, 1);
}
bool scatters() {
  const DeviceArray<float> y(std::vector<float>(64, 0));
  run(index_overflow, 1, 64, 0, y.data(), 40000000);
  return true;
}
bool returns_early() {
  const DeviceArray<int> y(std::vector<int>(64, 1));
  run(early_return, 1, 64, 0, y.data(), 40);
  return y.values() == std::vector<int>(64, 1);
}

const std::map<std::string_view, std::function<bool()>> cases = {
    {"none", [] { return reverses(reverse<true>); }},
    {"global_overflow", overflows},
    {"shared_overflow", [] { return fills(shared_overflow, 1.0f, 64, 0); }},
    {"dynamic_overflow", [] { return fills(dynamic_overflow, 1.0f, 64, 63 * sizeof(float)); }},
    {"local_overflow", [] { return fills(local_overflow, 1.0f, 8, 0, 0); }},
    {"use_after_free", fills_freed},
    {"host_pointer", copies_from_host},
    {"unwritten_global", [] { return fills(add_one, 1.0f, 64, 0); }},
    {"unwritten_shared", [] { return fills(read_unwritten_shared, 1.0f, 64, 0); }},
    {"misaligned", copies_misaligned},
    {"index_overflow", scatters},
    {"foreign_local", [] { return fills(foreign_local, 0, 64, 0); }},
    {"missing_barrier", [] { return reverses(reverse<false>); }},
    {"missing_barrier_lower", reads_lower},
    {"write_after_read", sums_rounds},
    {"lockstep", sums_in_lockstep},
    {"blocks_add", blocks_count},
    {"float_atomic", sums_by_atomics},
    {"conditional_barrier", [] { return fills(conditional_barrier, 1, 64, 0); }},
    {"two_barriers", [] { return fills(two_barriers, 1, 64, 0); }},
    {"trip_count", [] { return fills(trip_count, 1, 64, 0); }},
    {"early_return", returns_early},
    {"shuffle_in_branch", [] { return fills(shuffle_in_branch, 1.0f, 32, 0); }},
    {"partial_warp", [] { return fills(partial_warp, 32.0f, 48, 0); }},
    {"warp_against_block", [] { return fills(warp_against_block, 1.0f, 64, 0); }},
    {"wrong_mask", [] { return fills(wrong_mask, 1.0f, 32, 0); }},
    {"two_shuffles", [] { return fills(two_shuffles, 1.0f, 32, 0); }},
    {"no_dynamic_shared", [] { return fills(dynamic_overflow, 1.0f, 32, 0); }},
    {"block_too_large", [] { return fills(fill, 1.0f, 2048, 0); }},
    {"shared_too_large", [] { return fills(dynamic_overflow, 1.0f, 64, 228 << 10); }},
};

int notice(const std::function<bool()>& right) {
  bool wrong = false;
  try {
    cuda_on_host::every_schedule([&] { wrong = wrong || !right(); });
  } catch (const Error& e) {
    std::printf("noticed: %s\n", e.what());
    return 1;
  }
  std::puts(wrong ? "noticed: wrong result" : "nothing noticed");
  return wrong;
}

}  // namespace
}  // namespace ssn::kernels

int main(int argc, char** argv) {
  const auto& cases = ssn::kernels::cases;
  const auto it = argc == 2 ? cases.find(argv[1]) : cases.end();
  if (it == cases.end()) {
    for (const auto& [name, unused] : cases) std::printf("%s\n", std::string(name).c_str());
    return 2;
  }
  return ssn::kernels::notice(it->second);
}
