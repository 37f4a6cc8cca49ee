// launch.cuh, reduce.cuh, pack.cuh and the memory functions of runtime/cuda, under every schedule or on a
// GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/warp_tile.cuh"
#include "runtime/random.h"
#include "tests/cuda_on_host/schedules.h"
#include "tests/cuda_on_host/tests/device_array.h"
#include "tests/cuda_on_host/tests/gpu_test.h"

namespace ssn::kernels {
namespace {

using cuda_on_host::every_schedule;

template <class T>
std::vector<T> normals(std::size_t n, std::uint64_t stream) {
  const Random random(7, stream);
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<T>(random.normal(i));
  return v;
}

/// Block b owns row b of x; each of its threads writes the sum and the largest of the row.
template <class T>
__global__ void reduce_rows(int columns, const T* x, T* sums, T* largest) {
  const T* row = x + static_cast<std::int64_t>(blockIdx.x) * columns;
  T sum = 0, most = -std::numeric_limits<T>::infinity();
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    sum += row[c];
    most = Max{}(most, row[c]);
  }
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[i] = block_reduce(sum, Sum{}, T{0});
  largest[i] = block_reduce(most, Max{}, -std::numeric_limits<T>::infinity());
}

template <class T>
void expect_rows_reduced(int rows, int columns, unsigned threads) {
  const std::vector<T> x = normals<T>(static_cast<std::size_t>(rows * columns), 1);
  std::vector<T> first;
  every_schedule([&] {
    const DeviceArray<T> input(x), sums(rows * threads), largest(rows * threads);
    launch(cuda_queue(), "reduce_rows", reduce_rows<T>, rows, threads, 0, columns, input.data(), sums.data(),
           largest.data());
    const std::vector<T> s = sums.values(), m = largest.values();
    for (int r = 0; r < rows; ++r) {
      double sum = 0, most = -1e300;
      for (int c = 0; c < columns; ++c)
        sum += x[r * columns + c], most = std::max<double>(most, x[r * columns + c]);
      for (unsigned t = 0; t < threads; ++t) {
        const double error = std::abs(s[r * threads + t] - sum),
                     bound = columns * std::numeric_limits<T>::epsilon();
        if (!(error <= bound))
          FAIL() << "row " << r << ", thread " << t << ": " << s[r * threads + t] << ", expected " << sum;
        ASSERT_EQ(m[r * threads + t], most) << "row " << r << ", thread " << t;
        ASSERT_EQ(s[r * threads + t], s[r * threads]) << "every thread must get the same bits";
      }
    }
    if (first.empty()) first = s;
    EXPECT_TRUE(same_bits(first, s)) << "the sums depend on the order of the threads";
  });
}

class DeviceHelpers : public GpuTest {};
class RuntimeDouble : public EmulatorTest {};

TEST_F(DeviceHelpers, BlockReduce) {
  for (unsigned threads : {32u, 96u, 256u, 1024u}) {
    expect_rows_reduced<float>(3, 257, threads);
    expect_rows_reduced<double>(2, 1031, threads);
  }
}

__global__ void largest_of_32(const float* x, float* y) {
  y[threadIdx.x] = warp_reduce(x[threadIdx.x], Max{});
}

TEST_F(DeviceHelpers, MaxKeepsNaN) {
  for (int at : {0, 13, 31}) {
    std::vector<float> x = normals<float>(32, 2);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    const DeviceArray<float> input(x), output(32);
    launch(cuda_queue(), "largest", largest_of_32, 1, 32, 0, input.data(), output.data());
    for (float v : output.values()) EXPECT_TRUE(std::isnan(v));
  }
}

TEST_F(DeviceHelpers, SumRows) {
  for (int rows : {0, 1, 5, 8, 67}) {
    for (int columns : {1, 31, 33, 130}) {
      const std::vector<float> x = normals<float>(static_cast<std::size_t>(rows * columns), 3),
                               y0 = normals<float>(columns, 4);
      every_schedule([&] {
        for (bool add : {false, true}) {
          const DeviceArray<float> input(x), output(y0);
          sum_rows(cuda_queue(), "sum_rows", rows, columns, input.data(), output.data(), add);
          const std::vector<float> y = output.values();
          for (int c = 0; c < columns; ++c) {
            double sum = add ? y0[c] : 0;
            for (int r = 0; r < rows; ++r) sum += x[r * columns + c];
            if (!(std::abs(y[c] - sum) <= 1e-5))
              FAIL() << rows << "x" << columns << ", column " << c << ": " << y[c] << ", expected " << sum;
          }
        }
      });
    }
  }
}

/// A thread owns a pack.
template <class T, int N>
__global__ void scale(int packs, T factor, const T* x, T* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= packs) return;
  auto p = Pack<T, N>::load(x + i * N);
  const auto f = Pack<T, N>::filled(factor);
#pragma unroll
  for (int e = 0; e < N; ++e) p[e] *= f[e];
  p.store(y + i * N);
}

template <class T, int N>
void expect_scaled(int packs) {
  const std::vector<T> x = normals<T>(static_cast<std::size_t>(packs * N), 5);
  const DeviceArray<T> input(x), output(x.size());
  ASSERT_TRUE(aligned16(input.data()));
  launch(cuda_queue(), "scale", scale<T, N>, blocks_for(packs, 64), 64, 0, packs, 3, input.data(),
         output.data());
  const std::vector<T> y = output.values();
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] * 3) << i;
}

TEST_F(DeviceHelpers, Pack) {
  static_assert(kPack<float> == 4 && kPack<double> == 2 && sizeof(Pack<float, 4>) == 16 &&
                alignof(Pack<double, 2>) == 16);
  expect_scaled<float, 1>(3);
  expect_scaled<float, 4>(131);
  expect_scaled<double, 2>(65);
  alignas(16) float values[8];
  EXPECT_TRUE(aligned16(values + 4));
  EXPECT_FALSE(aligned16(values + 1));
}

/// A warp computes y (16, 32) = a (16, 48) bᵀ, b (32, 48), and z (16, 16) = y rounded · b's first 16 columns.
template <class T>
__global__ void multiply_tiles(const T* a, const T* b, Wider<T>* y, Wider<T>* z) {
  constexpr int kDepth = 48, kRows = 32, kStride = kRowStride<T, kDepth>;
  alignas(16) __shared__ T left[16 * kStride], right[kRows * kStride], scratch[16 * kRowStride<T, kRows>];
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kDepth; i += kWarp) {
    const int at = i / kDepth * kStride + i % kDepth;
    if (i < 16 * kDepth) left[at] = a[i];
    right[at] = b[i];
  }
  __syncwarp();
  WarpTile<T, kRows> first;
  WarpTile<T, 16> second;
  add_product_transposed<kDepth>(first, left, kStride, right, kStride);
  first.each([&](Wider<T> v, int j, int column) { y[warp_row(j / 2) * kRows + column] = v; });
  add_product(second, first, right, kStride, scratch);
  second.each([&](Wider<T> v, int j, int column) { z[warp_row(j / 2) * 16 + column] = v; });
}

template <class T>
void expect_tiles_multiplied(double tolerance) {
  std::vector<T> a, b;
  for (const double v : normals<double>(16 * 48, 8)) a.push_back(static_cast<T>(static_cast<float>(v)));
  for (const double v : normals<double>(32 * 48, 9)) b.push_back(static_cast<T>(static_cast<float>(v)));
  every_schedule([&] {
    const DeviceArray<T> left(a), right(b);
    const DeviceArray<Wider<T>> y(16 * 32), z(16 * 16);
    launch(cuda_queue(), "multiply", multiply_tiles<T>, 1, kWarp, 0, left.data(), right.data(), y.data(),
           z.data());
    const auto first = y.values(), second = z.values();
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 32; ++j) {
        double sum = 0;
        for (int k = 0; k < 48; ++k)
          sum += static_cast<double>(a[i * 48 + k]) * static_cast<double>(b[j * 48 + k]);
        ASSERT_NEAR(first[i * 32 + j], sum, tolerance) << i << ", " << j;
      }
      for (int j = 0; j < 16; ++j) {
        double sum = 0;
        for (int k = 0; k < 32; ++k)
          sum += static_cast<double>(static_cast<T>(first[i * 32 + k])) * static_cast<double>(b[k * 48 + j]);
        ASSERT_NEAR(second[i * 16 + j], sum, 30 * tolerance) << i << ", " << j;
      }
    }
  });
}

TEST_F(DeviceHelpers, ProductsOfAWarp) {
  expect_tiles_multiplied<bf16>(1e-4);
  expect_tiles_multiplied<float>(1e-4);
  expect_tiles_multiplied<double>(1e-12);
}

/// Reverses x, through dynamic shared memory.
__global__ void reverse(int n, const double* x, double* y) {
  SSN_DYNAMIC_SHARED(double, all);
  for (int i = threadIdx.x; i < n; i += blockDim.x) all[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = all[n - 1 - i];
}

TEST_F(DeviceHelpers, DynamicSharedMemory) {
  for (int n : {70, 12000}) {  // the second is more than 48 KiB
    const std::vector<double> x = normals<double>(n, 6);
    every_schedule([&] {
      const DeviceArray<double> input(x), output(n);
      launch(cuda_queue(), "reverse", reverse, 1, 128, n * sizeof(double), n, input.data(), output.data());
      EXPECT_TRUE(same_bits(output.values(), std::vector<double>(x.rbegin(), x.rend())));
    });
  }
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what() + (" at " + e.where());
  }
  return "no error";
}

TEST_F(DeviceHelpers, LaunchErrorNamesOperationAndLine) {
  const DeviceArray<double> x(8);
  const std::string m =
      message_of([&] { launch(cuda_queue(), "turn", reverse, 1, 2048, 64, 8, x.data(), x.data()); });
  EXPECT_EQ(m.find("[turn] cudaError"), 0u) << m;
  EXPECT_NE(m.find("device_helpers_test.cu:"), std::string::npos) << m;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "a reported error must be forgotten";
}

TEST_F(DeviceHelpers, Memory) {
  const std::vector<int> x = {5, 4, 3, 2, 1};
  const DeviceArray<int> a(x), b(x.size());
  memory::copy(cuda_queue(), b.data(), a.data(), x.size() * sizeof(int));
  memory::fill_bytes(cuda_queue(), a.data(), 0xFF, 2 * sizeof(int));
  memory::synchronize(cuda_queue());
  EXPECT_EQ(b.values(), x);
  EXPECT_EQ(a.values(), (std::vector<int>{-1, -1, 3, 2, 1}));
  memory::copy(cuda_queue(), nullptr, nullptr, 0);
  const std::string m = message_of([] { memory::allocate(cuda_queue(), std::size_t{1} << 60); });
  EXPECT_EQ(m.find("[allocate] no device memory for 1152921504606846976 bytes"), 0u) << m;
}

TEST_F(RuntimeDouble, WrongPlacesAreErrors) {
  const DeviceArray<int> a(4);
  std::vector<int> host(6);
  auto copy = [&](void* to, const void* from, std::size_t n) {
    return message_of([=] { memory::copy(cuda_queue(), to, from, n); });
  };
  EXPECT_NE(copy(a.data(), host.data(), 20).find("more than are left in their allocation"),
            std::string::npos);
  EXPECT_NE(copy(host.data(), a.data() + 1, 16).find("more than are left in their allocation"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              memory::fill_bytes(cuda_queue(), host.data(), 0, 4);
            }).find("do not lie in a device allocation"),
            std::string::npos);
  EXPECT_EQ(cudaMemcpy(a.data(), host.data(), 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(a.data() + 1), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace ssn::kernels
