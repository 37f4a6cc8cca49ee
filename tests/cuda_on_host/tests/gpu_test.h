#pragma once
#include <cuda_runtime.h>
#include <gtest/gtest.h>

namespace ssn {

/// Tests that run kernels: skipped where nvcc has compiled them and no GPU is there.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU";
  }
};

}  // namespace ssn
