// --shards: a training gives the same bits on any number of ranks.
#include <gtest/gtest.h>

#include "runtime/trace.h"
#include "tests/mpi/ranks.h"
#include "tests/mpi/shared_directory.h"
#include "tests/training_run.h"

namespace ssn {
namespace {

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void train_on(Comm& comm, const Arguments& arguments) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(train(comm, arguments), 0);
  testing::internal::GetCapturedStdout();
}

/// What metrics.jsonl says of the epochs, but for what takes how long.
std::string metrics(const std::string& directory) {
  std::ifstream file(directory + "/metrics.jsonl");
  std::string out, line;
  while (std::getline(file, line)) {
    auto json = nlohmann::json::parse(line);
    for (const char* name : {"seconds", "samples_per_second", "wire_bytes_per_step", "saving"})
      json.erase(name);
    out += json.dump() + "\n";
  }
  return out;
}

/// Wants the same from all ranks together as from one, and from the others where a run of one goes on.
void expect_same_bits(const std::string& name, const Arguments& run) {
  Comm& comm = test_comm();
  const SharedDirectory dir("shards_" + name);
  const std::string alone = dir / "alone", parts = dir / "parts", together = dir / "together";
  if (comm.rank() == 0) {
    SoloComm solo;
    train_on(solo, run + Arguments{"--out", alone});
    train_on(solo, run + Arguments{"--out", parts, "--stop-after", "2"});
  }
  comm.barrier();
  train_on(comm, run + Arguments{"--out", together});
  train_on(comm, {"--quiet", "--resume", parts});
  if (comm.rank() != 0) return;
  EXPECT_EQ(test::file_text(alone + "/checkpoint.h5"), test::file_text(together + "/checkpoint.h5")) << name;
  EXPECT_EQ(test::file_text(alone + "/checkpoint.h5"), test::file_text(parts + "/checkpoint.h5")) << name;
  EXPECT_EQ(metrics(alone), metrics(together)) << name;
  EXPECT_EQ(metrics(alone), metrics(parts)) << name;
}

TEST(Shards, DenseAndSharedAreTheSameOnAnyNumberOfRanks) {
  const Arguments small = test::small_run({"--shards", "4", "--eval-every", "1"});
  expect_same_bits("dense", small + Arguments{"--budget", "dense"});
  expect_same_bits("eager", small + Arguments{"--mapping", "random", "--groups", "3", "--bucket", "1"});
  expect_same_bits("lean", small + Arguments{"--weights", "lean", "--bucket", "1"});
}

TEST(Shards, WhateverElseAStepDoes) {
  // Shards of 3 and 4 samples; averages, clipping, a held-out set, several threads.
  expect_same_bits("uneven", test::small_run({"--shards", "4", "--batch", "13", "--optimizer", "lamb",
                                              "--ema", "0.9", "--clip", "0.05", "--validation", "0.2",
                                              "--threads", "2", "--save-every", "2"}));
  expect_same_bits("eight",
                   test::small_run({"--shards", "8", "--recompute", "all", "--label-smoothing", "0.1"}));
  // Dropout, labels that differ in number, and no running statistics.
  expect_same_bits("text",
                   {"--quiet", "--model", "bert-1-64", "--data", "synthetic-text", "--length", "8", "--batch",
                    "64", "--epochs", "1", "--budget", "20%", "--optimizer", "adamw", "--shards", "4"});
  // Evaluations that take weights from theta within the product (autograd/fused_linear.h).
  start_trace();
  expect_same_bits("fused", {"--quiet", "--model", "bert-1-512", "--data", "synthetic-text:4", "--length",
                             "4", "--batch", "16", "--epochs", "1", "--budget", "15%", "--weights", "lean",
                             "--optimizer", "adamw", "--shards", "4"});
  const Trace trace = stop_trace();
  EXPECT_TRUE(std::ranges::any_of(trace.events, [](const TraceEvent& event) {
    return std::string_view(event.name) == "generated_linear";
  }));
}

TEST(Shards, ATrainingOfOtherShardsIsAnother) {
  Comm& comm = test_comm();
  const SharedDirectory dir("other_shards");
  for (const std::string shards : {"4", "8"})
    train_on(comm, test::small_run({"--out", dir / shards, "--shards", shards, "--stop-after", "1"}));
  if (comm.rank() == 0) {
    EXPECT_NE(metrics(dir / "4") + test::file_text(dir / "4/checkpoint.h5"),
              metrics(dir / "8") + test::file_text(dir / "8/checkpoint.h5"));
  }
}

TEST(Shards, WhatCannotBeDividedIsRefused) {
  Comm& comm = test_comm();
  const auto refusal = [&](const Arguments& options) {
    try {
      train(comm, test::small_run(options));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_TRUE(test::has(refusal({"--shards", "6"}), "must be a power of two, such as 4"));
  EXPECT_TRUE(
      test::has(refusal({"--shards", "4", "--micro-batches", "2"}), "--micro-batches 2: leave it out"));
  EXPECT_TRUE(test::has(refusal({"--shards", "4", "--wire", "bf16"}), "--wire bf16: leave it out"));
  EXPECT_TRUE(test::has(refusal({"--shards", "16"}), "too few"));
  if (comm.size() == 4) {
    EXPECT_TRUE(test::has(refusal({"--shards", "2"}), "1, 2, 4, ... 2 ranks, found 4"));
  }
}

}  // namespace
}  // namespace ssn
