#pragma once
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "runtime/flavour.h"

namespace ssn {

/// Tests that run kernels: skipped where nvcc has compiled them and no GPU is there.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU";
  }
};

/// Tests of the emulator itself: skipped where the kernels do not run on the host.
class EmulatorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!build::cuda_on_host) GTEST_SKIP() << "kernels do not run on the host";
  }
};

}  // namespace ssn
