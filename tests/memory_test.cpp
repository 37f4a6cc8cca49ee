// Memory of training: what is predicted is what is taken, and limits are kept.
#include "tools/training/memory.h"

#include <gtest/gtest.h>

#include "kernels/conv.h"
#include "runtime/flavour.h"
#include "runtime/queue.h"
#include "tests/usage_error.h"
#include "tools/training/trainer.h"

namespace ssn::test {
namespace {

/// The UsageError of f contains the text.
void expect_usage_error(const std::function<void()>& f, const std::string& text) {
  const std::string message = usage_error_of(f);
  EXPECT_NE(message.find(text), message.npos) << message;
}

TrainConfig small(const std::string& model) {
  TrainConfig config;
  config.model = model;
  config.data = "synthetic:3x16x16x10x192";
  config.budget = "20%";
  config.epochs = 1;
  config.batch = 64;
  config.threads = 1;
  return config;
}

RunSize size_of(const TrainConfig& config) {
  const Dataset dataset = load_dataset(config.data);
  return {.input = dataset.facts.input, .trained = dataset.train->size(), .measured = dataset.test->size()};
}

/// What a training took, in one epoch on one rank.
std::int64_t taken(const TrainConfig& config) {
  const Dataset dataset = load_dataset(config.data);
  trim_pool(Device::cpu);
  const auto before = static_cast<std::int64_t>(pool_stats(Device::cpu).held);
  Model model(config, dataset.facts.input, Device::cpu);
  SoloComm solo;
  model.build(solo);
  const Recompute recompute = choose_recompute(config, size_of(config));
  Trainer(solo, model, {.config = config, .dataset = dataset, .train = dataset.train, .recompute = recompute})
      .run();
  return static_cast<std::int64_t>(pool_stats(Device::cpu).held) - before;
}

std::int64_t predicted(const TrainConfig& config) {
  const RunSize size = size_of(config);
  return training_memory(config, size, choose_recompute(config, size));
}

TEST(Memory, WhatIsPredictedIsTaken) {
  if constexpr (build::exact_allocation)
    GTEST_SKIP() << "this build gives memory back, and does not count the most it had";
  std::vector<TrainConfig> configs(11, small("wrn-16-1"));
  configs[1].weights = "lean";
  configs[2].micro_batches = 4, configs[2].optimizer = "adamw", configs[2].ema = 0.9;
  configs[3].recompute = "block1";
  configs[4].model = "resnet-20", configs[4].budget = "dense", configs[4].optimizer = "lamb";
  configs[5].upsample = "inter", configs[5].recompute = "all";
  configs[6].allocation = "resized", configs[6].weights = "lean";
  configs[7].data = "synthetic:3x16x16x10x50", configs[7].batch = 1 << 20;  // fewer samples than a batch
  configs[8].data = "synthetic:3x16x16x10x640",
  configs[8].batch = 8;  // more are measured than trained on at once
  configs[9].model = "bert-2-128", configs[9].data = "synthetic-text:20", configs[9].batch = 4;
  configs[10] = configs[9];
  if (kernels::conv_takes_bf16(cpu_queue())) configs[10].precision = "bf16";
  for (const TrainConfig& c : configs) {
    const auto expected = static_cast<double>(predicted(c));
    EXPECT_NEAR(static_cast<double>(taken(c)), expected, 0.1 * expected)
        << c.model << ' ' << c.weights << ' ' << c.recompute << ' ' << c.optimizer;
  }
}

TEST(Memory, UnknownSetsCountAsLargeOnes) {
  const TrainConfig config = small("wrn-16-1");
  RunSize size = size_of(config);
  size.trained = size.measured = 1000;
  const std::int64_t large = training_memory(config, size, {});
  size.trained = size.measured = RunSize::kUnknown;
  EXPECT_EQ(training_memory(config, size, {}), large);
}

/// An evaluation takes as many samples at a time as training does, however many there are.
TEST(Memory, AnEvaluationTakesNoMoreThanAStep) {
  TrainConfig config = small("wrn-16-1");
  config.batch = 8;
  config.micro_batches = 2;
  RunSize size = size_of(config);
  const auto of_measuring = [&](std::int64_t samples) {
    size.measured = samples;
    return static_cast<double>(training_memory(config, size, {}));
  };
  EXPECT_LT(of_measuring(1000), 1.05 * of_measuring(1));
}

TEST(Memory, ALimitIsKeptWithAsFewSegmentsAsPossible) {
  TrainConfig config = small("wrn-16-1");
  const RunSize size = size_of(config);
  const std::int64_t full = predicted(config);
  config.recompute = "all";
  const std::int64_t least = predicted(config);
  ASSERT_LT(least, full);
  config.recompute = "none";
  const auto limited = [&](std::int64_t bytes) {
    config.memory = fmt::format("{}K", bytes / 1024 + 1);
    const Recompute recompute = choose_recompute(config, size);
    EXPECT_LE(training_memory(config, size, recompute), bytes + 1024);
    return recompute.segments().size();
  };
  EXPECT_EQ(limited(full), 0u);
  const std::size_t some = limited((full + least) / 2);
  EXPECT_GT(some, 0u);
  EXPECT_LT(some, 6u);
  config.memory = fmt::format("{}K", least / 1024 - 100);
  expect_usage_error([&] { choose_recompute(config, size); },
                     "lower --batch (64), raise --micro-batches (1)");
}

TEST(Memory, SegmentsAreNamedByTheirBeginnings) {
  TrainConfig config = small("wrn-16-1");
  const RunSize size = size_of(config);
  const auto chosen = [&](const std::string& names) {
    config.recompute = names;
    return choose_recompute(config, size).segments();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(chosen("none"), Names{});
  EXPECT_EQ(chosen("block2"), (Names{"block2.layer.0", "block2.layer.1"}));
  EXPECT_EQ(chosen("block3.layer.1,block1,block1.layer.0"),
            (Names{"block1.layer.0", "block1.layer.1", "block3.layer.1"}));
  EXPECT_EQ(chosen("all").size(), 6u);
  for (const char* wrong : {"block", "block1.", "", "block1,", "all,block1"})
    expect_usage_error([&] { chosen(wrong); }, "the network has no segment");
  config.recompute = "all", config.memory = "1G";
  expect_usage_error([&] { choose_recompute(config, size); }, "leave --recompute all out");
}

TEST(Memory, SizesAreNumbersWithAUnit) {
  EXPECT_EQ(parse_memory("1K"), 1024);
  EXPECT_EQ(parse_memory("1.5M"), 3 << 19);
  EXPECT_EQ(parse_memory("2G"), std::int64_t{1} << 31);
  for (const char* wrong : {"", "1", "G", "-1G", "0G", "1GB", "1 G", "nanG", "infG", "1e99T"})
    expect_usage_error([&] { parse_memory(wrong); }, "expected a size such as 800M");
  EXPECT_EQ(memory_text(1000), "1000 bytes");
  EXPECT_EQ(memory_text(3 << 19), "1.5 MiB");
}

}  // namespace
}  // namespace ssn::test
