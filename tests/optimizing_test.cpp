// Optimizers, clipping, averages and patience in ssn train: resumption, checkpoints, refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/optimizer.h"
#include "tests/close.h"
#include "tests/training_run.h"

namespace ssn {
namespace {

using test::file_text;
using test::has;
using test::output_of;
using test::refusal;
using test::same_bits;
using test::small_run;
using test::TemporaryDirectory;
using test::train_small;
using test::values_of;

Arguments with(Arguments all, const Arguments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Optimizing, ResumesExactlyWithEveryOptimizer) {
  const TemporaryDirectory dir("optimizers");
  for (const std::string& name : names_of<OptimizerKind>()) {
    const Arguments options = {"--optimizer", name,  "--lr",         "0.01", "--ema", "0.9",
                               "--clip",      "0.5", "--validation", "0.2"};  // 40 samples: 3 steps an epoch
    train_small(with({"--out", dir / name}, options));
    const std::string part = dir / (name + "_part");
    train_small(with({"--out", part, "--stop-after", "5"}, options));
    output_of(train, {"--resume", part, "--quiet"});
    EXPECT_EQ(file_text(dir / (name + "/checkpoint.h5")), file_text(part + "/checkpoint.h5")) << name;
    EXPECT_EQ(file_text(dir / (name + "/best.h5")), file_text(part + "/best.h5")) << name;
    const Archive whole = load_checkpoint(part + "/checkpoint.h5");
    EXPECT_EQ(whole.attribute<std::int64_t>("optimizer/steps"), 9) << name;
  }
}

TEST(Optimizing, DefaultsAreTheOptimizers) {
  const TemporaryDirectory dir("defaults");
  const auto config_of = [&](const Arguments& more) {
    train_small(with({"--out", dir / "run", "--overwrite", "--stop-after", "1"}, more));
    return file_text(dir / "run/config.toml");
  };
  const std::string adamw = config_of({"--optimizer", "adamw", "--schedule", "exponential"});
  for (const char* line : {"lr = 0.001\n", "decay = 0.01\n", "beta2 = 0.999\n", "lr-factor = 0.97\n"})
    EXPECT_TRUE(has(adamw, line));
  const std::string rmsprop = config_of({"--optimizer", "rmsprop", "--decay", "0.5"});
  for (const char* line : {"lr = 0.016\n", "decay = 0.5\n", "beta2 = 0.9\n", "epsilon = 0.001\n"})
    EXPECT_TRUE(has(rmsprop, line));
  EXPECT_TRUE(has(config_of({}), "lr = 0.1\n"));
}

TEST(Optimizing, RefusesWhatCannotBe) {
  const TemporaryDirectory dir("refused");
  train_small({"--out", dir / "run", "--stop-after", "2", "--optimizer", "adam", "--ema", "0.9"});
  const auto resumed = [&](const Arguments& more) {
    return refusal(train, with({"--resume", dir / "run", "--quiet"}, more));
  };
  EXPECT_TRUE(has(resumed({"--optimizer", "sgd"}), "was trained with --optimizer adam, found sgd"));
  EXPECT_TRUE(has(resumed({"--ema", "0"}), "was trained with --ema 0.9, found 0"));
  const auto refused = [&](const Arguments& more) { return refusal(train, small_run(more)); };
  EXPECT_TRUE(has(refused({"--optimizer", "adan"}), "did you mean"));
  EXPECT_TRUE(has(refused({"--patience", "3"}), "give --validation"));
  EXPECT_TRUE(has(refused({"--patience", "3", "--validation", "0.2", "--eval-every", "0"}), "--eval-every"));
  EXPECT_TRUE(has(refused({"--validation", "0.001"}), "of 50 training samples that is none"));
  EXPECT_TRUE(
      has(refused({"--optimizer", "adam", "--epsilon", "1e-40"}), "epsilon of adam must be at least"));
  for (const char* option : {"--beta1", "--beta2", "--ema", "--momentum"})
    EXPECT_TRUE(has(refused({option, "1"}), "below 1")) << option;
  for (const char* option : {"--epsilon", "--lr-factor"}) EXPECT_TRUE(has(refused({option, "0"}), option));
}

/// The gradient of the first step: with these options the velocity after it.
std::vector<double> first_gradient(const std::string& out, const Arguments& more) {
  train_small(with({"--out", out, "--stop-after", "1", "--decay", "0"}, more));
  std::vector<double> all;
  const Archive archive = load_checkpoint(out + "/checkpoint.h5");
  for (const auto& [name, tensor] : archive.tensors)
    if (name.starts_with("optimizer/velocity/"))
      for (const double v : values_of(tensor)) all.push_back(v);
  return all;
}

TEST(Optimizing, ClipsTheWholeGradient) {
  const TemporaryDirectory dir("clip");
  const std::vector<double> free = first_gradient(dir / "free", {});
  double squares = 0;
  for (const double g : free) squares += g * g;
  const double norm = std::sqrt(squares);
  ASSERT_GT(norm, 0);
  const std::vector<double> clipped =
      first_gradient(dir / "clipped", {"--clip", fmt::format("{}", norm / 8), "--micro-batches", "1"});
  ASSERT_EQ(clipped.size(), free.size());
  for (std::size_t i = 0; i < free.size(); ++i) EXPECT_NEAR(clipped[i], free[i] / 8, 1e-6 * norm);
  EXPECT_EQ(first_gradient(dir / "long", {"--clip", fmt::format("{}", 2 * norm)}), free);
  double parts = 0;  // the norm is that of the sum
  for (const double g : first_gradient(dir / "parts", {"--clip", "0.01", "--micro-batches", "3"}))
    parts += g * g;
  EXPECT_NEAR(std::sqrt(parts), 0.01, 1e-7);
}

TEST(Optimizing, AGradientThatIsNotFiniteIsAnError) {
  const TemporaryDirectory dir("gradient");
  SoloComm comm;
  try {
    train(comm, small_run({"--out", dir / "run", "--lr", "1e8", "--clip", "1"}));
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "step 2 of epoch 1: the gradient is not finite"));
  }
}

TEST(Optimizing, AveragesAreOfAllStepsAndAreWhatIsMeasured) {
  const TemporaryDirectory dir("ema");
  const auto after = [&](int steps) {
    const std::string out = dir / fmt::format("{}", steps);
    train_small({"--out", out, "--stop-after", fmt::format("{}", steps), "--ema", "0.25"});
    return load_checkpoint(out + "/checkpoint.h5");
  };
  Archive before = after(1);
  for (const int t : {2, 3}) {
    const Archive now = after(t);
    const double d = std::min(0.25, (1.0 + t) / (10.0 + t));
    int compared = 0;
    for (const auto& [name, tensor] : now.tensors) {
      if (!name.starts_with("average/")) continue;
      const std::vector<double> value = values_of(now.tensor(name.substr(8)));
      std::vector<double> want = values_of(before.tensor(name));
      for (std::size_t i = 0; i < want.size(); ++i) want[i] = d * want[i] + (1 - d) * value[i];
      EXPECT_TRUE(test::close(values_of(tensor), want, 1e-6, test::scale_of(want, 1e-3))) << name;
      ++compared;
    }
    EXPECT_GT(compared, 10);
    before = now;
  }
}

TEST(Optimizing, EvalAndExportUseTheAverages) {
  const TemporaryDirectory dir("averages");
  const nlohmann::json trained = train_small({"--out", dir / "run", "--ema", "0.9"});
  const nlohmann::json measured =
      nlohmann::json::parse(output_of(eval, {dir / "run/checkpoint.h5", "--json", "--quiet"}));
  EXPECT_EQ(measured["test_error1"], trained["test_error1"]);
  EXPECT_NEAR(measured["test_loss"].get<double>(), trained["test_loss"].get<double>(), 1e-3);
  const nlohmann::json without = train_small({"--out", dir / "without"});
  EXPECT_GT(std::abs(without["test_loss"].get<double>() - trained["test_loss"].get<double>()), 1e-3);

  output_of(export_weights, {dir / "run/checkpoint.h5", dir / "weights.h5", "--names", "own"});
  const Archive run = load_checkpoint(dir / "run/checkpoint.h5"), out = load_checkpoint(dir / "weights.h5");
  int compared = 0;
  for (const auto& [name, tensor] : out.tensors) {
    if (name.starts_with("weights/")) continue;
    EXPECT_TRUE(same_bits(tensor, run.tensor("average/" + name))) << name;
    ++compared;
  }
  EXPECT_GT(compared, 10);
  const Archive plain = load_checkpoint(dir / "without/checkpoint.h5");
  EXPECT_TRUE(same_bits(run.tensor("parameters/group0"), plain.tensor("parameters/group0")));
}

TEST(Optimizing, PatienceEndsARunWithItsBest) {
  const TemporaryDirectory dir("patience");
  const Arguments options = {"--validation", "0.2", "--eval-every", "1", "--epochs", "40"};
  train_small(with({"--out", dir / "all"}, options));
  std::istringstream lines(file_text(dir / "all/metrics.jsonl"));
  double best_error = 101;
  nlohmann::json best, line;
  std::int64_t stop = 0;
  for (std::string text; stop == 0 && std::getline(lines, text);) {
    line = nlohmann::json::parse(text);
    if (line["validation_error1"] < best_error) best = line, best_error = line["validation_error1"];
    if (line["epoch"].get<std::int64_t>() - best["epoch"].get<std::int64_t>() == 3) stop = line["epoch"];
  }
  ASSERT_GT(stop, 3);  // the error of ten samples can fall ten times

  const Arguments patient = with(options, {"--patience", "3"});
  const nlohmann::json result = train_small(with({"--out", dir / "run"}, patient));
  EXPECT_EQ(result["epochs"], stop);
  EXPECT_EQ(result["stopped_early"], true);
  EXPECT_EQ(result["best_epoch"], best["epoch"]);
  EXPECT_EQ(result["test_error1"], best["test_error1"]);
  EXPECT_EQ(result["test_loss"], best["test_loss"]);
  EXPECT_EQ(load_checkpoint(dir / "run/best.h5").attribute<std::int64_t>("trainer/epoch"), best["epoch"]);

  train_small(with({"--out", dir / "part", "--stop-after", fmt::format("{}", 3 * (stop - 2) + 1)}, patient));
  const auto resumed =
      nlohmann::json::parse(output_of(train, {"--resume", dir / "part", "--json", "--quiet"}));
  for (const char* name : {"epochs", "best_epoch", "stopped_early", "test_loss"})
    EXPECT_EQ(resumed[name], result[name]) << name;
  EXPECT_EQ(file_text(dir / "part/checkpoint.h5"), file_text(dir / "run/checkpoint.h5"));
  // It is complete, until it is given more patience.
  const auto again = nlohmann::json::parse(output_of(train, {"--resume", dir / "run", "--json", "--quiet"}));
  EXPECT_EQ(again["epochs"], stop);
  EXPECT_EQ(again["test_loss"], result["test_loss"]);
  EXPECT_TRUE(has(output_of(train, {"--resume", dir / "run", "--quiet"}), "none better within --patience"));
  const auto more = nlohmann::json::parse(
      output_of(train, {"--resume", dir / "run", "--json", "--quiet", "--patience", "40"}));
  EXPECT_EQ(more["epochs"], 40);
  EXPECT_EQ(more["stopped_early"], false);
}

}  // namespace
}  // namespace ssn
