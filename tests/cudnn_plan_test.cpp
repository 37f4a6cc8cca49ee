// What the installed cuDNN answers for GPUs that are described to it: that every convolution of the networks
// has a plan there, deterministic and as exact as asked for, without a GPU.
#include "kernels/cuda/cudnn_plan.h"

#include <cudnn.h>
#include <gtest/gtest.h>

#include "runtime/cuda/late/libraries.h"
#include "runtime/device.h"

namespace ssn::kernels {
namespace {

/// A GPU, as its data sheet has it.
struct Card {
  std::string name;
  int capability;  // 90 is 9.0
  int processors, clock, memory_clock, cache, shared, threads, blocks;
  std::int64_t memory;
};
const Card kT4{"Tesla T4", 75, 40, 1590000, 5001000, 4 << 20, 64 << 10, 1024, 16, std::int64_t{15} << 30};
const Card kA100{"NVIDIA A100-SXM4-40GB", 80, 108, 1410000, 1215000, 40 << 20, 163 << 10, 2048, 32,
                 std::int64_t{40} << 30};
const Card kH100{"NVIDIA H100 80GB HBM3", 90, 132, 1980000, 2619000, 50 << 20, 227 << 10, 2048, 32,
                 std::int64_t{80} << 30};

/// As cuDNN writes it.
std::string properties_of(const Card& c) {
  return fmt::format(
      R"({{"deviceName": "{}", "cudaDeviceId": 0, "pciDeviceId": 0, "deviceVer": {}, "driverVer": 13000,)"
      R"( "multiProcessorCount": {}, "smClockRateKHz": {}, "memClockRateKHz": {}, "l2CacheSize": {},)"
      R"( "totalGlobalMem": {}, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],)"
      R"( "warpSize": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,)"
      R"( "maxSharedMemoryPerBlockOptin": {}, "reservedSharedMemoryPerBlock": {}, "maxCtasPerSM": {},)"
      R"( "maxThreadsPerBlock": 1024, "maxThreadsPerSM": {}, "isTccDriver": 0, "supportCoopLaunch": 1}})",
      c.name, 10 * c.capability, c.processors, c.clock, c.memory_clock, c.cache, c.memory, c.shared,
      c.capability < 80 ? 0 : 1024, c.blocks, c.threads);
}

/// Images of a side, padded so that a kernel without stride keeps it.
ConvGeometry layer(std::int64_t n, std::int64_t side, std::int64_t c, std::int64_t o, std::int64_t k,
                   std::int64_t stride = 1) {
  ConvGeometry g{n, side, side, c, o, k, k};
  for (int i = 0; i < 2; ++i) g.stride[i] = stride, g.padding[i] = k / 2;
  return g;
}

/// Layers of every kind that the networks have: of WRN-28-10, WRN-50-2, the sample, EfficientNet-B0 and
/// DenseNet.
std::vector<ConvGeometry> layers() {
  std::vector<ConvGeometry> all;
  for (const std::int64_t n : {1, 128})
    all.insert(all.end(),
               {layer(n, 32, 3, 16, 3), layer(n, 32, 16, 160, 3), layer(n, 32, 16, 160, 1),
                layer(n, 32, 160, 160, 3), layer(n, 32, 160, 320, 3, 2), layer(n, 32, 160, 320, 1, 2),
                layer(n, 16, 320, 320, 3), layer(n, 8, 640, 640, 3)});
  all.insert(all.end(),
             {layer(128, 224, 3, 32, 3, 2), layer(128, 224, 3, 64, 7, 2), layer(128, 112, 32, 64, 3),
              layer(128, 56, 64, 128, 1), layer(128, 56, 128, 128, 3), layer(128, 56, 256, 512, 1, 2),
              layer(128, 28, 512, 512, 3, 2), layer(128, 14, 512, 1024, 1), layer(128, 7, 1024, 1024, 3),
              layer(128, 7, 1024, 2048, 1)});
  all.insert(all.end(), {layer(32, 8, 1, 16, 3), layer(8, 4, 32, 64, 3, 2), layer(8, 2, 64, 64, 3)});
  all.insert(all.end(), {layer(64, 1, 96, 4, 1), layer(64, 1, 4, 96, 1), layer(64, 112, 32, 16, 1),
                         layer(64, 56, 24, 144, 1), layer(64, 14, 240, 80, 1), layer(64, 7, 320, 1280, 1)});
  all.insert(all.end(), {layer(64, 32, 36, 48, 1), layer(64, 16, 48, 12, 3), layer(64, 8, 108, 48, 1)});
  return all;
}

class CudnnPlans : public testing::Test {
 protected:
  void SetUp() override {
    constexpr std::size_t kDescribes = 90800;  // the first version that takes a description
    if (const std::string missing = missing_libraries({&cudnn()}); !missing.empty()) GTEST_SKIP() << missing;
    if (cudnnGetVersion() < kDescribes)
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " needs the GPU itself";
  }
  void expect_plans(const Card& card, std::initializer_list<std::pair<bool, bool>> half_and_tf32) {
    const std::string properties = properties_of(card);
    for (const ConvGeometry& g : layers())
      for (const ConvPass pass : {ConvPass::forward, ConvPass::data, ConvPass::weight})
        for (const auto& [half, tf32] : half_and_tf32)
          EXPECT_TRUE(conv_workspace_on(properties, {g, pass, half, tf32}))
              << card.name << ": " << g.text() << ", pass " << static_cast<int>(pass) << ", half " << half
              << ", tf32 " << tf32;
  }
};

TEST_F(CudnnPlans, EveryLayerHasOneOnHopper) {
  expect_plans(kH100, {{false, false}, {false, true}, {true, false}});
}
TEST_F(CudnnPlans, EveryLayerHasOneOnAmpere) {
  expect_plans(kA100, {{false, false}, {false, true}, {true, false}});
}
TEST_F(CudnnPlans, EveryLayerHasOneOnTuringInF32) {
  expect_plans(kT4, {{false, false}});
}
TEST_F(CudnnPlans, NoneIsForBf16BeforeCapability8) {  // as conv_takes_bf16 has it
  EXPECT_FALSE(
      conv_workspace_on(properties_of(kT4), {layer(128, 32, 160, 160, 3), ConvPass::forward, true, false}));
}
TEST_F(CudnnPlans, NeedADescription) {
  EXPECT_THROW(conv_workspace_on("{}", {layer(1, 8, 3, 4, 3), ConvPass::forward, false, false}), Error);
}

}  // namespace
}  // namespace ssn::kernels
