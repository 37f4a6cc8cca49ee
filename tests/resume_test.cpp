// Checkpoints beside the training, and runs that are taken up.
#include <gtest/gtest.h>

#include <csignal>

#include "runtime/config.h"
#include "tests/close.h"
#include "tests/training_run.h"
#include "tools/training/saver.h"
#include "tools/training/stop_signals.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
using test::file_text;
using test::has;
using test::output_of;
using test::refusal;
using test::small_run;
using test::TemporaryDirectory;
using test::train_small;

/// What goes on from a checkpoint, or the directory of a run, says on stderr.
std::string said(const std::string& from, const Arguments& more) {
  Arguments all = {"--resume", from};
  all.insert(all.end(), more.begin(), more.end());
  testing::internal::CaptureStderr();
  output_of(train, all);
  return testing::internal::GetCapturedStderr();
}

/// The Error that it ends with.
std::string failure(const std::string& from, const Arguments& more) {
  try {
    said(from, more);
  } catch (const Error& error) {
    return error.what() + testing::internal::GetCapturedStderr();
  }
  return "nothing failed";
}

std::int64_t step_of(const std::string& checkpoint) {
  const Archive archive = load_checkpoint(checkpoint);
  return archive.attribute<std::int64_t>("trainer/epoch") *
             archive.attribute<std::int64_t>("trainer/steps_per_epoch") +
         archive.attribute<std::int64_t>("trainer/step");
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

/// While it lives, nothing can be written to the file: its temporary name is taken.
class Blocked {
 public:
  explicit Blocked(const std::string& file) : path_(file + ".partial") {
    fs::create_directories(path_ / "taken");
  }
  ~Blocked() { fs::remove_all(path_); }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  fs::path path_;
};

/// An empty run directory and what goes into a checkpoint.
struct Saving {
  TemporaryDirectory dir;
  SoloComm comm;
  RunDirectory directory;
  Tensor values = Tensor::full({1 << 20}, 1, DType::f32);

  explicit Saving(const std::string& name)
      : dir(name), directory(comm, {.path = dir / "run", .resume = {}, .network = {}, .mapping = {}}) {}
  void save(Saver& saver, std::int64_t step, bool best = false) {
    values.fill(static_cast<double>(step));
    Archive archive;
    archive.tensors["values"] = values;
    saver.save(archive, step, best);
  }
  double saved(const std::string& name) {
    return load_checkpoint(directory.file(name)).tensor("values").data<float>()[(1 << 20) - 1];
  }
};

TEST(Saver, WritesWhatWasThereWhenItWasAsked) {
  Saving s("snapshot");
  Saver saver(s.directory, {});
  for (std::int64_t step = 1; step <= 3; ++step) {
    s.save(saver, step);
    s.values.fill(-1);
    saver.wait();
    EXPECT_EQ(s.saved("checkpoint.h5"), static_cast<double>(step));
  }
  const SaveTimes times = saver.take_times();
  EXPECT_EQ(times.count, 3);
  EXPECT_GT(times.bytes, 3 * (4 << 20));
  EXPECT_GT(times.copy_seconds, 0);
  EXPECT_GT(times.write_seconds, times.copy_seconds);
  EXPECT_EQ(saver.take_times().count, 0);
}

TEST(Saver, FinishesWhatItHasBegun) {
  Saving s("finishes");
  {
    Saver saver(s.directory, {});
    s.save(saver, 1);
  }
  EXPECT_EQ(s.saved("checkpoint.h5"), 1);
}

TEST(Saver, KeepsThoseBefore) {
  Saving s("keeps");
  Saver saver(s.directory, {.keep = 3});
  for (std::int64_t step = 1; step <= 5; ++step) s.save(saver, step, step == 2);
  saver.finish();
  EXPECT_EQ(names_in(s.directory.path()),
            (std::vector<std::string>{"best.h5", "checkpoint-3.h5", "checkpoint-4.h5", "checkpoint.h5"}));
  EXPECT_EQ(s.saved("best.h5"), 2);
  EXPECT_EQ(s.saved("checkpoint-4.h5"), 4);
  EXPECT_EQ(s.saved("checkpoint.h5"), 5);
  // Another one goes on from 3: what came after that goes.
  fs::copy_file(s.directory.file("checkpoint-3.h5"), s.directory.file("checkpoint.h5"),
                fs::copy_options::overwrite_existing);
  Saver again(s.directory, {.keep = 3});
  again.set_newest(3);
  s.save(again, 4);
  again.finish();
  EXPECT_EQ(names_in(s.directory.path()),
            (std::vector<std::string>{"best.h5", "checkpoint-3.h5", "checkpoint.h5"}));
}

TEST(Saver, AFailureStopsTheTrainingOrIsTriedAgain) {
  Saving s("fails");
  const std::string newest = s.directory.file("checkpoint.h5");
  Saver stops(s.directory, {});
  s.save(stops, 1);
  stops.wait();
  {
    const Blocked blocked(newest);
    s.save(stops, 2);
    stops.wait();
    EXPECT_TRUE(stops.failed());
    EXPECT_THROW(stops.check(), Error);
    EXPECT_THROW(stops.finish(), Error);
  }
  EXPECT_EQ(s.saved("checkpoint.h5"), 1);
  Saver goes_on(s.directory, {.goes_on = true});
  testing::internal::CaptureStderr();
  {
    const Blocked blocked(s.directory.file("best.h5"));
    s.save(goes_on, 3, true);
    s.save(goes_on, 4);  // not before the best one that it knows of
    goes_on.wait();
    EXPECT_EQ(s.saved("checkpoint.h5"), 1);
    EXPECT_FALSE(fs::exists(s.directory.file("best.h5")));
  }
  s.save(goes_on, 5);
  goes_on.finish();
  EXPECT_TRUE(has(testing::internal::GetCapturedStderr(), "the checkpoint of step 3 is not saved: "));
  EXPECT_EQ(s.saved("best.h5"), 3);
  EXPECT_EQ(s.saved("checkpoint.h5"), 5);
}

TEST(Resuming, SavesWithinEpochs) {
  const TemporaryDirectory dir("within");
  const auto result = train_small({"--out", dir / "run", "--save-every", "3", "--keep", "4"});
  EXPECT_EQ(result["saving"]["count"], 6);  // steps 3, 4, 6, 8, 9, 12
  EXPECT_EQ(step_of(dir / "run/checkpoint.h5"), 12);
  for (const std::int64_t step : {6, 8, 9}) EXPECT_EQ(step_of(dir / ("run/" + kept_name(step))), step);
  EXPECT_EQ(kept_steps(dir / "run"), (std::vector<std::int64_t>{9, 8, 6}));
  const std::string whole = file_text(dir / "run/checkpoint.h5");
  for (const char* from : {"run/checkpoint-6.h5", "run"}) {
    output_of(train, {"--resume", dir / from, "--quiet"});
    EXPECT_EQ(file_text(dir / "run/checkpoint.h5"), whole) << from;
    EXPECT_EQ(kept_steps(dir / "run").size(), 3u) << from;
  }
}

TEST(Resuming, AFullDiskStopsTheRunOrDoesNot) {
  const TemporaryDirectory dir("full");
  train_small({"--out", dir / "run", "--stop-after", "2", "--save-every", "1"});
  const std::string before = file_text(dir / "run/checkpoint.h5");
  {
    const Blocked blocked(dir / "run/checkpoint.h5");
    const std::string stopped = failure(dir / "run", {});
    EXPECT_TRUE(has(stopped, "the checkpoint of step 3 is not saved"));
    EXPECT_TRUE(has(stopped, "the one of step 2 stands: make it possible"));
    const std::string complete = failure(dir / "run", {"--on-save-failure", "continue"});
    EXPECT_TRUE(has(complete, "the next save tries again"));
    EXPECT_TRUE(has(complete, "the checkpoint of step 12 is not saved"));
    EXPECT_TRUE(has(complete, "the one of step 2 stands"));
  }
  EXPECT_EQ(file_text(dir / "run/checkpoint.h5"), before);
  train_small({"--out", dir / "whole", "--save-every", "1"});
  output_of(train, {"--resume", dir / "run", "--quiet"});
  EXPECT_EQ(file_text(dir / "run/checkpoint.h5"), file_text(dir / "whole/checkpoint.h5"));
}

TEST(Resuming, RemovesWhatAKilledRunHadBegun) {
  const TemporaryDirectory dir("leftover");
  train_small({"--out", dir / "run", "--stop-after", "5"});
  const std::vector<std::string> before = names_in(dir / "run");
  for (const char* name : {"run/checkpoint.h5.partial", "run/checkpoint-4.h5.partial", "run/best.h5.partial"})
    std::ofstream(dir / name) << "half";
  EXPECT_TRUE(has(said(dir / "run", {}), "run/checkpoint-4.h5.partial, which a program that was killed"));
  EXPECT_EQ(names_in(dir / "run"), before);
}

TEST(Resuming, SaysWhatIsLost) {
  const TemporaryDirectory dir("lost");
  train_small({"--out", dir / "run", "--stop-after", "10", "--validation", "0.2", "--eval-every", "1"});
  const std::string metrics = file_text(dir / "run/metrics.jsonl");
  std::ofstream(dir / "run/metrics.jsonl") << "{\"epoch\": \n" << metrics.substr(metrics.find('\n') + 1);
  fs::remove(dir / "run/best.h5");
  const std::string said_first = said(dir / "run", {"--stop-after", "11"});
  EXPECT_TRUE(has(said_first, "of the 3 epochs before the checkpoint it has 2 (1 of its lines are damaged)"));
  EXPECT_TRUE(has(said_first, "has no best.h5, which was written after epoch"));
  fs::remove(dir / "run/metrics.jsonl");
  EXPECT_TRUE(has(said(dir / "run", {}), "of the 3 epochs before the checkpoint it has 0"));
  fs::rename(dir / "run/checkpoint.h5", dir / "run/checkpoint-3.h5");
  EXPECT_TRUE(has(refusal(train, {"--resume", dir / "run"}), "has no checkpoint.h5, but checkpoint-3.h5"));
  fs::create_directory(dir / "empty");
  EXPECT_TRUE(has(refusal(train, {"--resume", dir / "empty"}), "there is no run to go on with"));
}

TEST(Resuming, RefusesACheckpointOfAnotherRun) {
  const TemporaryDirectory dir("other");
  train_small({"--out", dir / "run", "--stop-after", "5"});
  auto resumed = [&](const Arguments& more) {
    Arguments all = {"--resume", dir / "run/checkpoint.h5", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return refusal(train, all);
  };
  const char* fixed[][3] = {{"model", "wrn-10-1", "wrn-16-1"},
                            {"data", "synthetic", "digits"},
                            {"input", "''", "1x9x9"},
                            {"length", "128", "64"},
                            {"vocab-size", "0", "9"},
                            {"budget", "30%", "40%"},
                            {"count", "groups", "total"},
                            {"baseline", "none", "reduced"},
                            {"mapping", "single", "random"},
                            {"groups", "0", "2"},
                            {"combine", "emb", "avg"},
                            {"templates", "8", "4"},
                            {"embedding", "24", "12"},
                            {"allocation", "cursor", "resized"},
                            {"upsample", "mask", "repeat"},
                            {"window", "9", "4"},
                            {"masks", "group", "layer"},
                            {"mask-init", "small", "ones"},
                            {"inter", "aspect", "ref"},
                            {"gain", "auto", "off"},
                            {"near", "0", "1"},
                            {"search-epochs", "0", "1"},
                            {"batch", "12", "13"},
                            {"optimizer", "sgd", "adam"},
                            {"ema", "0", "0.9"},
                            {"validation", "0", "0.2"},
                            {"shards", "0", "2"},
                            {"seed", "5", "1"}};
  for (const auto& [name, was, now] : fixed)
    EXPECT_TRUE(has(resumed({fmt::format("--{}", name), now}),
                    fmt::format("was trained with --{} {}, found {}: leave the flag out", name, was, now)));
  EXPECT_TRUE(has(resumed({"--cased"}), "was trained with --cased false, found true"));
  EXPECT_TRUE(has(resumed({"--stop-after", "4"}), "is at step 5 already"));
  EXPECT_TRUE(has(resumed({"--epochs", "1"}), "--epochs 1: the checkpoint is at step 1 of epoch 2 already"));
  const std::string config = file_text(dir / "run/config.toml");
  EXPECT_TRUE(has(resumed({"--data", "synthetic:1x9x6x3x50"}),
                  "1x7x6 images of 3 classes, found 1x9x6 images of 3 classes"));
  EXPECT_TRUE(has(resumed({"--data", "synthetic:1x7x6x3x51"}), "it was trained on 50 training and 10 test"));
  EXPECT_EQ(file_text(dir / "run/config.toml"), config);
  train_small({"--out", dir / "second", "--stop-after", "1"});
  const std::string second = file_text(dir / "second/checkpoint.h5");
  EXPECT_TRUE(has(resumed({"--out", dir / "second"}), "second holds a run"));
  EXPECT_EQ(file_text(dir / "second/checkpoint.h5"), second);
}

TEST(Resuming, TakesAndTellsWhatMayChange) {
  const TemporaryDirectory dir("changes");
  train_small({"--out", dir / "run", "--stop-after", "5"});
  const std::string changes =
      said(dir / "run", {"--epochs", "4", "--lr", "0.05", "--no-nesterov", "--keep", "2", "--eval-every", "3",
                         "--clip", "1", "--micro-batches", "2", "--flip", "--out", dir / "further"});
  for (const char* change :
       {"--epochs 4 (before 3)", "--lr 0.05 (before 0.1)", "--nesterov false (before true)",
        "--keep 2 (before 1)", "--eval-every 3 (before 5)", "--clip 1 (before 0)",
        "--micro-batches 2 (before 1)", "--flip true (before false)"})
    EXPECT_TRUE(has(changes, change));
  EXPECT_FALSE(has(changes, "--batch"));
  const std::string config = file_text(dir / "further/config.toml");
  EXPECT_TRUE(has(config, "lr = 0.05"));
  EXPECT_EQ(step_of(dir / "further/checkpoint.h5"), 16);
  const std::string metrics = file_text(dir / "further/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 4);
  EXPECT_TRUE(has(said(dir / "further", {}), "goes on from " + (dir / "further/checkpoint.h5") + "\n"));
}

TEST(StopSignals, LeaveAnIgnoredHangUpIgnored) {
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    raise(SIGHUP);
    EXPECT_FALSE(StopSignals::arrived());
  }
  sigaction(SIGHUP, &before, nullptr);
  const StopSignals signals;
  raise(SIGHUP);
  EXPECT_TRUE(StopSignals::arrived());
}

/// The same training, written at the same step by every version of the format.
TEST(Resume, ReadsEveryVersionOfTheFormat) {
  const TemporaryDirectory dir("versions");
  const fs::path kept = fs::path(build::source_data_dir) / "../tests/data/checkpoints";
  std::optional<Archive> first;
  for (const int version : {1, 2}) {
    const std::string name = fmt::format("version{}", version);
    fs::create_directory(dir / name);
    const std::string old = dir / name + "/checkpoint.h5";
    fs::copy_file(kept / (name + ".h5"), old);
    EXPECT_EQ(load_checkpoint(old).format_version, version);
    EXPECT_TRUE(has(output_of(eval, {old, "--quiet"}), "wrn-10-1 on synthetic:1x7x6x3x50"));
    output_of(export_weights, {old, dir / name + "/weights.h5"});
    said(dir / name, {"--quiet"});
    Archive now = load_checkpoint(old);
    EXPECT_EQ(step_of(old), 6);
    now.attributes.erase("command");
    if (!first) first = now;
    EXPECT_EQ(now.attributes, first->attributes) << name;
    for (const auto& [tensor_name, tensor] : first->tensors)
      EXPECT_TRUE(test::same_bits(tensor, now.tensor(tensor_name))) << name << ": " << tensor_name;
  }
}

}  // namespace
}  // namespace ssn
