// ssn train and its fellows on one rank: bits, resumption, files, refusals.
#include <gtest/gtest.h>

#include <numeric>

#include <cmath>
#include <csignal>
#include <thread>

#include "autograd/label_ranks.h"
#include "datasets/synthetic.h"
#include "runtime/dispatch.h"
#include "tests/close.h"
#include "tests/training_run.h"
#include "tools/training/run_directory.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
using test::file_text;
using test::has;
using test::output_of;
using test::refusal;
using test::same_bits;
using test::small_run;
using test::TemporaryDirectory;
using test::train_small;

TEST(Training, ReportsWhatItDid) {
  const TemporaryDirectory dir("reports");
  const nlohmann::json result = train_small({"--out", dir / "run"});
  EXPECT_EQ(result["network"], "wrn-10-1");
  EXPECT_EQ(result["data"], "synthetic:1x7x6x3x50");
  EXPECT_EQ(result["ranks"], 1);
  EXPECT_EQ(result["device"], "cpu");
  EXPECT_EQ(result["epochs"], 3);
  EXPECT_EQ(result["steps"], 12);
  EXPECT_EQ(result["wire_bytes_per_step"], 0);
  const auto& p = result["parameters"];
  EXPECT_EQ(p["budget"].get<std::int64_t>(), p["shareable"].get<std::int64_t>() * 3 / 10);
  EXPECT_GT(p["total"], p["budget"]);
  EXPECT_GT(p["original"], p["shareable"]);
  EXPECT_GE(result["test_error1"], 0);
  EXPECT_LE(result["test_error1"], 100);
  EXPECT_EQ(result["test_error5"], 0);  // of 3 classes
  EXPECT_GT(result["samples_per_second"], 0);
  EXPECT_EQ(result["checkpoint"], dir / "run/checkpoint.h5");

  const std::string metrics = file_text(dir / "run/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 3);
  const auto plan_file = nlohmann::json::parse(file_text(dir / "run/plan.json"));
  EXPECT_EQ(plan_file["parameters"]["budget"], p["budget"]);
  EXPECT_FALSE(fs::exists(dir / "run/best.h5"));
}

TEST(Training, SameSeedSameBits) {
  const TemporaryDirectory dir("seed");
  train_small({"--out", dir / "a"});
  train_small({"--out", dir / "b"});
  train_small({"--out", dir / "c", "--seed", "6"});
  EXPECT_EQ(file_text(dir / "a/checkpoint.h5"), file_text(dir / "b/checkpoint.h5"));
  EXPECT_NE(file_text(dir / "a/checkpoint.h5"), file_text(dir / "c/checkpoint.h5"));
}

TEST(Training, ItsConfigRepeatsIt) {
  const TemporaryDirectory dir("config");
  train_small({"--out", dir / "a", "--validation", "0.2", "--schedule", "steps", "--lr-steps", "1,2"});
  output_of(train, {"--config", dir / "a/config.toml", "--out", dir / "b", "--quiet"});
  EXPECT_TRUE(test::same_but_for_the_command(dir / "a/checkpoint.h5", dir / "b/checkpoint.h5"));
  EXPECT_EQ(file_text(dir / "a/config.toml"), file_text(dir / "b/config.toml"));
}

TEST(Training, ResumesAtAnyStep) {
  const TemporaryDirectory dir("resume");
  const Arguments plain = {"--validation", "0.1"};  // of 50: 45 are left, 3 steps an epoch
  const Arguments rich = {"--validation", "0.1",   "--ema",          "0.9",  "--micro-batches", "2",
                          "--optimizer",  "adamw", "--on-nonfinite", "skip", "--patience",      "3",
                          "--save-every", "2",     "--keep",         "2",    "--eval-every",    "1"};
  for (const Arguments& options : {plain, rich}) {
    auto with = [&](Arguments more) {
      more.insert(more.end(), options.begin(), options.end());
      return more;
    };
    train_small(with({"--out", dir / "whole", "--overwrite"}));
    for (const char* stop : {"1", "3", "5", "8"}) {
      const std::string part = dir / fmt::format("part{}", stop);
      EXPECT_EQ(train_small(with({"--out", part, "--overwrite", "--stop-after", stop}))["steps"],
                std::stoi(stop));
      output_of(train, {"--resume", part, "--quiet"});
      EXPECT_EQ(file_text(dir / "whole/checkpoint.h5"), file_text(part + "/checkpoint.h5")) << stop;
      EXPECT_EQ(file_text(dir / "whole/best.h5"), file_text(part + "/best.h5")) << stop;
      const std::string metrics = file_text(part + "/metrics.jsonl");
      EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 3) << stop;
    }
  }
}

TEST(Training, PoliciesGiveTheSameBits) {
  const TemporaryDirectory dir("policies");
  train_small({"--out", dir / "eager", "--weights", "eager"});
  train_small({"--out", dir / "lean", "--weights", "lean"});
  const Archive eager = load_checkpoint(dir / "eager/checkpoint.h5"),
                lean = load_checkpoint(dir / "lean/checkpoint.h5");
  ASSERT_EQ(eager.tensors.size(), lean.tensors.size());
  for (const auto& [name, tensor] : eager.tensors) EXPECT_TRUE(same_bits(tensor, lean.tensor(name))) << name;
}

TEST(Training, StopsAtASignalWithACheckpoint) {
  const TemporaryDirectory dir("signal");
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string run = dir / fmt::format("part{}", signal);
    // The signal comes once the run has begun to write: its handlers are there, and its end is far.
    std::jthread later([signal, file = run + "/checkpoint.h5"] {
      while (!fs::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      kill(getpid(), signal);
    });
    output_of(train, small_run({"--out", run, "--epochs", "100000"}), kStopped);
    const Archive part = load_checkpoint(run + "/checkpoint.h5");
    const std::int64_t steps = part.attribute<std::int64_t>("trainer/epoch") *
                                   part.attribute<std::int64_t>("trainer/steps_per_epoch") +
                               part.attribute<std::int64_t>("trainer/step");
    output_of(train, small_run({"--out", dir / "same", "--overwrite", "--epochs", "100000", "--stop-after",
                                fmt::format("{}", steps)}));
    EXPECT_EQ(file_text(run + "/checkpoint.h5"), file_text(dir / "same/checkpoint.h5"));
  }
}

TEST(Training, EvalAgreesWithTrain) {
  const TemporaryDirectory dir("eval");
  const nlohmann::json trained = train_small({"--out", dir / "run"});
  const nlohmann::json measured = nlohmann::json::parse(
      output_of(eval, {dir / "run/checkpoint.h5", "--json", "--quiet", "--batch", "3"}));
  EXPECT_EQ(measured["test_error1"], trained["test_error1"]);
  EXPECT_NEAR(measured["test_loss"].get<double>(), trained["test_loss"].get<double>(), 1e-3);
  EXPECT_EQ(measured["samples"], 10);
}

TEST(Training, InspectShowsWhatIsThere) {
  const TemporaryDirectory dir("inspect");
  train_small({"--out", dir / "run"});
  const nlohmann::json shown =
      nlohmann::json::parse(output_of(inspect, {dir / "run/checkpoint.h5", "--json"}));
  EXPECT_EQ(shown["attributes"]["trainer/epoch"], 3);
  bool group = false;
  for (const auto& tensor : shown["tensors"]) group |= tensor["name"] == "parameters/group0";
  EXPECT_TRUE(group);
  EXPECT_TRUE(has(output_of(inspect, {dir / "run/checkpoint.h5"}), "  group0 "));
}

TEST(Training, PlanIsThatOfTrain) {
  const TemporaryDirectory dir("plan");
  train_small({"--out", dir / "run", "--mapping", "random", "--groups", "3"});
  nlohmann::json shown =
      nlohmann::json::parse(output_of(plan, {"--config", dir / "run/config.toml", "--json"}));
  const nlohmann::json written = nlohmann::json::parse(file_text(dir / "run/plan.json"));
  for (const auto& [key, value] : written.items()) EXPECT_EQ(shown[key], value) << key;
  EXPECT_EQ(shown["bytes"]["wire_bytes_per_step"], 4 * written["parameters"]["total"].get<std::int64_t>());
}

TEST(Training, RefusesADirectoryThatHoldsARun) {
  const TemporaryDirectory dir("refuses");
  train_small({"--out", dir / "run", "--stop-after", "1"});
  const std::string before = file_text(dir / "run/checkpoint.h5");
  EXPECT_TRUE(has(refusal(train, small_run({"--out", dir / "run"})), "holds a run"));
  EXPECT_EQ(file_text(dir / "run/checkpoint.h5"), before);
  train_small({"--out", dir / "run", "--stop-after", "2", "--overwrite"});
  EXPECT_NE(file_text(dir / "run/checkpoint.h5"), before);
  fs::remove(dir / "run/checkpoint.h5");
  EXPECT_TRUE(has(refusal(train, small_run({"--out", dir / "run"})), "holds a run: replace it"));
}

TEST(Training, OverwritingLeavesNothingOfTheRunBefore) {
  const TemporaryDirectory dir("overwrites");
  fs::create_directory(dir / "run");
  for (const char* file : {"run/vocab.txt", "run/best.h5", "run/mapping.json"})
    std::ofstream(dir / file) << 'x';
  train_small({"--out", dir / "run", "--stop-after", "1", "--overwrite"});
  for (const char* file : {"run/vocab.txt", "run/best.h5", "run/mapping.json"})
    EXPECT_FALSE(fs::exists(dir / file)) << file;
}

TEST(Training, GoesOnInAnotherDirectory) {
  const TemporaryDirectory dir("elsewhere");
  const Arguments options = {"--validation", "0.2", "--patience", "9"};
  const auto run = [&](const char* name, Arguments more) {
    more.insert(more.end(), {"--out", dir / name});
    more.insert(more.end(), options.begin(), options.end());
    return train_small(more);
  };
  run("whole", {});
  output_of(train, {"--resume", dir / "whole", "--quiet", "--out", dir / "ended"});
  for (const char* file : {"/best.h5", "/checkpoint.h5"})  // which its result names
    EXPECT_EQ(file_text(dir / "ended" + file), file_text(dir / "whole" + file)) << file;
}

/// A run that is cut off between them has no checkpoint that waits for better than a state it has not.
TEST(Training, WritesTheBestStateBeforeTheCheckpointThatKnowsOfIt) {
  const TemporaryDirectory dir("order");
  train_small({"--out", dir / "run", "--validation", "0.2", "--epochs", "1", "--eval-every", "1"});
  EXPECT_LE(fs::last_write_time(dir / "run/best.h5"), fs::last_write_time(dir / "run/checkpoint.h5"));
}

TEST(Training, RefusesADirectoryThatIsInUse) {
  const TemporaryDirectory dir("in_use");
  SoloComm comm;
  const Arguments run = small_run({"--out", dir / "run", "--overwrite"});
  {
    const RunDirectory other(comm, {.path = dir / "run", .resume = {}, .network = "wrn-10-1"});
    EXPECT_TRUE(has(refusal(train, run), "another program is writing its run"));
  }
  output_of(train, run);
}

TEST(Training, RefusesWhatCannotBeBeforeItWritesAnything) {
  const TemporaryDirectory dir("wrong");
  auto refused = [&](Arguments more) {
    more.insert(more.end(), {"--out", dir / "run"});
    const std::string message = refusal(train, small_run(more));
    EXPECT_FALSE(fs::exists(dir / "run")) << message;
    return message;
  };
  EXPECT_TRUE(has(refused({"--micro-batches", "13"}), "too few for 1 rank(s) with 13 part(s)"));
  EXPECT_TRUE(has(refused({"--budget", "0"}), "budget"));
  EXPECT_TRUE(has(refused({"--budget", "nonsense"}), "budget"));
  EXPECT_TRUE(has(refused({"--mapping", "random", "--groups", "3", "--budget", "2"}), "budget"));
  EXPECT_TRUE(has(refused({"--model", "wrn-11-1"}), "wrn-11-1"));
  EXPECT_TRUE(has(refused({"--data", "digit"}), "did you mean 'digits'"));
  EXPECT_TRUE(has(refused({"--lr-steps", "3,2"}), "--lr-steps"));
  EXPECT_TRUE(has(refused({"--warmup", "4"}), "--warmup"));
  EXPECT_TRUE(has(refused({"--momentum", "1"}), "--momentum"));
  EXPECT_TRUE(has(refused({"--label-smoothing", "1"}), "--label-smoothing"));
  if (!available(Device::cuda)) {
    EXPECT_TRUE(has(refused({"--device", "cuda"}), "use --device cpu"));
  }
  EXPECT_TRUE(has(refused({"--precision", "tf32"}), "use --device cuda"));
  EXPECT_TRUE(has(refused({"--threads", "100000"}), "--threads"));
  EXPECT_TRUE(has(refused({"--epoch", "4"}), "did you mean --epochs?"));
  EXPECT_TRUE(has(refused({"--recompute", "block9"}), "no segment 'block9'"));
  EXPECT_TRUE(has(refused({"--memory", "1K"}), "--memory 1K"));
}

TEST(Training, ALossThatIsNotFiniteIsAnError) {
  const TemporaryDirectory dir("finite");
  SoloComm comm;
  try {
    train(comm, small_run({"--out", dir / "run", "--lr", "1e30"}));
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "the loss is not finite"));
  }
  EXPECT_FALSE(fs::exists(dir / "run/checkpoint.h5"));
}

TEST(Training, MemoryStaysFlat) {
  const TemporaryDirectory dir("memory");
  auto peak_after = [&](const char* steps) {
    trim_pool(Device::cpu);
    train_small({"--out", dir / steps, "--stop-after", steps, "--epochs", "50"});
    return pool_stats(Device::cpu);
  };
  const PoolStats few = peak_after("7"), many = peak_after("120");
  // How many batches are ready ahead is a matter of time.
  constexpr std::size_t kBatches = 32 << 10;
  EXPECT_LE(many.held, few.held + kBatches);
  EXPECT_LE(many.in_use, few.in_use + kBatches);
  EXPECT_LE(many.peak, few.peak + kBatches);
}

TEST(Training, UnknownCommandsAreNamed) {
  SoloComm comm;
  EXPECT_THROW(run_command(comm, {}), UsageError);
  EXPECT_TRUE(has(refusal(run_command, {"trian"}), "did you mean 'train'?"));
  EXPECT_TRUE(has(output_of(run_command, {"--help"}), "inspect"));
  EXPECT_TRUE(has(output_of(run_command, {"train", "--help"}), "--budget"));
}

TEST(Metrics, CountWrongAnswers) {
  const float nan = std::nanf("");
  const std::vector<float> logits = {
      3,   1,   2,   0,   -1,  -2,  -3,  // label 0: first
      3,   1,   2,   0,   -1,  -2,  -3,  // label 4: fifth, wrong at 1
      3,   1,   2,   0,   -1,  -2,  -3,  // label 5: sixth, wrong at 5
      1,   1,   1,   1,   1,   1,   1,   // label 0: first of equals
      1,   1,   1,   1,   1,   1,   1,   // label 5: sixth of equals
      nan, nan, nan, nan, nan, nan, nan  // label 0: not a number
  };
  const std::vector<std::int32_t> labels = {0, 4, 5, 0, 5, 0};
  Metrics metrics;
  metrics.add(
      label_ranks(Var::constant(Tensor::of<float>({6, 7}, logits)), Tensor::of<std::int32_t>({6}, labels))
          .value(),
      12);
  EXPECT_EQ(metrics.samples(), 6);
  EXPECT_EQ(metrics.loss(), 2);
  EXPECT_EQ(metrics.error1(), 100 * 4 / 6.0);
  EXPECT_EQ(metrics.error5(), 100 * 3 / 6.0);
}

TEST(HoldOut, CutsTheSetInTwo) {
  const Samples set = std::make_shared<ImageSamples>(synthetic_images({{1, 3, 2}, 4}, 30, 1, 0),
                                                     Augmentation{}, Normalization{});
  const Split split = hold_out(set, 0.25, 3);
  EXPECT_EQ(split.held_out->size(), 7);
  EXPECT_EQ(split.rest->size(), 23);
  std::vector<std::string> seen, all;
  auto collect = [](const Samples& from, auto& into) {
    std::vector<std::int32_t> every(from->size());
    std::iota(every.begin(), every.end(), 0);
    const Batch batch = from->make(every, Random(1, "unused"), false);
    for (std::int64_t i = 0; i < from->size(); ++i) {
      const auto* image = reinterpret_cast<const char*>(batch.images.data<float>() + i * 6);
      into.push_back(std::string(image, 6 * sizeof(float)) +
                     fmt::format("{}", batch.labels.data<std::int32_t>()[i]));
    }
  };
  collect(split.rest, seen);
  collect(split.held_out, seen);
  collect(set, all);
  EXPECT_NE(seen, all);
  std::sort(seen.begin(), seen.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(seen, all);
  EXPECT_EQ(hold_out(set, 0, 3).rest->size(), 30);
  EXPECT_EQ(hold_out(set, 0, 3).held_out, nullptr);
}

/// A sample is changed as it would be in the whole set.
TEST(HoldOut, LeavesRandomChangesAsTheyWere) {
  const Samples set =
      std::make_shared<ImageSamples>(synthetic_images({{1, 5, 4}, 4}, 20, 1, 0),
                                     Augmentation{.flip = true, .crop_padding = 2}, Normalization{});
  const Samples part = subset(set, {17, 3, 8});
  const Random random(4, "changes");
  const std::vector<std::int32_t> two = {2, 1}, same = {8, 3};
  const auto pixels = [&](const Samples& from, const std::vector<std::int32_t>& of) {
    const Batch batch = from->make(of, random, true);
    const auto span = batch.images.span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_EQ(pixels(part, two), pixels(set, same));
}

TEST(Config, EpochsOfTheSteps) {
  EXPECT_EQ(parse_epochs("60,120,160.5"), (std::vector<double>{60, 120, 160.5}));
  for (const char* wrong : {"", "0", "3,3", "1,", ",1", "1;2", "x", "1 2", "-1"})
    EXPECT_THROW(parse_epochs(wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace ssn
