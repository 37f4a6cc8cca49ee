// The search for groups is done by one rank, and its result is the same on any number of ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "runtime/error.h"
#include "tests/mpi/ranks.h"
#include "tests/mpi/shared_directory.h"
#include "tests/training_run.h"

namespace ssn {
namespace {

using test::file_text;
using test::small_run;

std::string output_of(int (*command)(Comm&, const Arguments&), Comm& comm, const Arguments& arguments) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(command(comm, arguments), 0);
  return testing::internal::GetCapturedStdout();
}

TEST(SearchOnRanks, FindsWhatOneRankFinds) {
  Comm& comm = test_comm();
  const SharedDirectory dir("search");
  // Two threads on any number of ranks: more than a rank's share of the cores may be.
  const Arguments run = {"--search-threads", "2", "--search-epochs", "2", "--groups", "3", "--out"};
  const auto to = [&](const char* file, const Arguments& more = {}) {
    Arguments all = run;
    all.push_back(dir / file);
    all.insert(all.end(), more.begin(), more.end());
    return small_run(all);
  };
  output_of(map, comm, to("ranks.json"));
  output_of(map, comm, to("again.json"));
  output_of(train, comm, to("run", {"--mapping", "learned"}));
  if (comm.rank() == 0) {
    SoloComm solo;
    output_of(map, solo, to("solo.json"));
    const std::string found = file_text(dir / "solo.json");
    EXPECT_EQ(file_text(dir / "ranks.json"), found);
    EXPECT_EQ(file_text(dir / "again.json"), found);
    EXPECT_EQ(file_text(dir / "run/mapping.json"), found);
    const auto mapping = nlohmann::json::parse(found),
               plan = nlohmann::json::parse(file_text(dir / "run/plan.json"));
    EXPECT_EQ(plan["groups"].size(), 3u);
    for (const auto& layer : plan["layers"])
      EXPECT_EQ(layer["group"], mapping[layer["name"].get<std::string>()]);
  }
  comm.idle_barrier();
}

/// Families that differ in what their layers are: attention, depthwise convolutions, concatenation.
TEST(SearchOnRanks, EveryFamilyLearnsAtATenth) {
  Comm& comm = test_comm();
  const SharedDirectory dir("families");
  const auto losses = [&](const std::string& model, const Arguments& more) {
    Arguments run = {"--quiet", "--threads",    "1", "--model",  model,      "--budget", "10%", "--mapping",
                     "learned", "--groups",     "3", "--warmup", "1",        "--epochs", "3",   "--batch",
                     "12",      "--eval-every", "0", "--out",    dir / model};
    run.insert(run.end(), more.begin(), more.end());
    output_of(train, comm, run);
    std::vector<double> found;
    std::ifstream lines(dir / model + "/metrics.jsonl");
    for (std::string line; comm.rank() == 0 && std::getline(lines, line);)
      found.push_back(nlohmann::json::parse(line)["train_loss"]);
    comm.idle_barrier();
    return found;
  };
  const Arguments text = {"--data", "synthetic-text:60", "--length", "16", "--optimizer", "adamw", "--lr",
                          "0.005"};
  const Arguments images = {"--data", "synthetic:3x8x8x3x192", "--batch", "24", "--lr", "0.002"};
  for (const auto& [model, options] : {std::pair{"bert-1-64", text},
                                       {"albert-2-64", text},
                                       {"densenet-22-4", images},
                                       {"efficientnet-b0", images}}) {
    const std::vector<double> found = losses(model, options);
    if (comm.rank() != 0) continue;
    EXPECT_LT(found.at(2), 0.95 * found.at(0)) << model;
  }
}

TEST(SearchOnRanks, ASignalToARankThatWaitsIsNotLost) {
  Comm& comm = test_comm();
  if (comm.size() == 1) GTEST_SKIP() << "needs a rank that waits";
  const SharedDirectory dir("search_waits");
  std::jthread later;
  if (comm.rank() == comm.size() - 1)
    later = std::jthread([run = dir / "run"] {
      while (!std::filesystem::exists(run)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill(getpid(), SIGUSR1);
    });
  const Arguments run = small_run({"--mapping", "learned", "--groups", "3", "--out", dir / "run",
                                   "--search-epochs", "300", "--lr", "0.001"});
  try {
    train(comm, run);
    FAIL() << "the training went on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("start it with --mapping"), std::string::npos) << error.what();
  }
  if (comm.rank() == 0) {
    EXPECT_TRUE(std::filesystem::exists(dir / "run/mapping.json"));
    EXPECT_FALSE(std::filesystem::exists(dir / "run/checkpoint.h5"));
  }
  comm.idle_barrier();
}

TEST(SearchOnRanks, AllRanksFailAlike) {
  Comm& comm = test_comm();
  const SharedDirectory dir("search_fails");
  EXPECT_THROW(map(comm, small_run({"--groups", "99", "--out", dir / "map.json"})), Error);
  EXPECT_THROW(train(comm, small_run({"--mapping", "learned", "--groups", "99", "--out", dir / "run"})),
               Error);
  if (comm.rank() == 0) atomic_write_text(dir / "half.json", "{\"conv1\": 0}");
  comm.barrier();
  EXPECT_THROW(train(comm, small_run({"--mapping", dir / "half.json", "--out", dir / "run"})), Error);
}

}  // namespace
}  // namespace ssn
