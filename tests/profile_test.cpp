#include "tools/training/profile.h"

#include <cmath>
#include <numeric>

#include "tests/training_run.h"

namespace ssn {
namespace {

TEST(Profile, SpreadIsTheMedianAndTheMiddleEightyPercent) {
  std::vector<double> values(101);
  std::iota(values.rbegin(), values.rend(), 0);
  const Spread s = spread_of(values);
  EXPECT_EQ(s.median, 50);
  EXPECT_NEAR(s.low, 10, 1e-12);
  EXPECT_NEAR(s.high, 90, 1e-12);
  EXPECT_EQ(spread_of({3}).low, 3);
}

TEST(Profile, SpeedupIsOfTheTurnsThatMetTheSame) {
  const Speedup same = speedup({2, 4, 8}, {1, 2, 4});
  EXPECT_NEAR(same.mean, 2, 1e-12);
  EXPECT_NEAR(same.low, 2, 1e-9);
  EXPECT_NEAR(same.high, 2, 1e-9);
  // Ratios e^-1 and e^1: mean of the logarithms 0, their deviation √2, t 12.71 for one degree of freedom.
  const Speedup wide = speedup({1, std::exp(1)}, {std::exp(1), 1});
  EXPECT_NEAR(wide.mean, 1, 1e-12);
  EXPECT_NEAR(std::log(wide.high), 12.71 * std::sqrt(2.0 / 2), 1e-9);
  EXPECT_NEAR(std::log(wide.low), -std::log(wide.high), 1e-12);
}

nlohmann::json profiled(const Arguments& more) {
  Arguments all = {"--quiet", "--threads", "1",       "--model", "wrn-10-1", "--data", "synthetic:1x7x6x3x50",
                   "--batch", "12",        "--turns", "2",       "--steps",  "3",      "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return nlohmann::json::parse(test::output_of(profile, all));
}

TEST(Profile, SaysWhatCouldBeHiddenAndWhatAStepTakesAtLeast) {
  Profile p;
  p.schedule = {.sums = {{0.4, 100}, {0.6, 300}}, .backward_end = 0.9, .tail = 0.1};
  p.work_seconds = 1;
  p.raw_seconds = 0.8;
  p.step.median = 1.4;
  EXPECT_DOUBLE_EQ(p.bound(), 0.4 + 0.8 + 0.1);
  EXPECT_DOUBLE_EQ(p.hideable(), 0.5) << "the work behind the first sum";
  EXPECT_DOUBLE_EQ(p.hidden_share(), 0.8);
  p.raw_seconds = 0.2;
  p.step.median = 0.99;
  EXPECT_DOUBLE_EQ(p.bound(), 1);
  EXPECT_DOUBLE_EQ(p.hideable(), 0.2) << "all of the sum";
  EXPECT_DOUBLE_EQ(p.hidden_share(), 1);
  p.schedule.sums = {{0.9, 400}};
  EXPECT_DOUBLE_EQ(p.hideable(), 0);
  EXPECT_DOUBLE_EQ(p.hidden_share(), 0);
}

TEST(Profile, ShowsEachBudgetsSteps) {
  const nlohmann::json out = profiled({"--budgets", "dense,30%,2%"});
  ASSERT_EQ(out["budgets"].size(), 3u);
  EXPECT_EQ(out["budgets"][0]["speedup"], 1);
  EXPECT_GT(out["budgets"][0]["parameters"], out["budgets"][1]["parameters"]);
  EXPECT_GT(out["budgets"][1]["parameters"], out["budgets"][2]["parameters"]);
  for (const nlohmann::json& p : out["budgets"]) {
    EXPECT_EQ(p["wire_bytes_per_step"], 0) << "one rank sends nothing";
    EXPECT_EQ(p["turn_seconds"].size(), 2u);
    EXPECT_GT(p["step_seconds"]["low"], 0);
    EXPECT_GT(p["phase_seconds"]["forward"]["low"], 0);
    EXPECT_GT(p["phase_seconds"]["backward"]["low"], 0);
    EXPECT_LE(p["phase_seconds"]["forward"]["low"], p["step_seconds"]["high"]);
  }
}

TEST(Profile, GoesThroughMoreStepsThanTheDataHasInAnEpoch) {
  EXPECT_EQ(profiled({"--budgets", "dense", "--micro-batches", "2", "--batch", "50"})["batch"], 50);
}

TEST(Profile, TracesTheLastTurns) {
  const test::TemporaryDirectory dir("trace");
  const std::string path = dir / "trace.json";
  profiled({"--budgets", "dense,30%", "--trace", path});
  const auto file = nlohmann::json::parse(std::ifstream(path));
  std::map<std::string, int> counts;
  for (const auto& event : file["traceEvents"])
    if (event["ph"] == "X") ++counts[event["name"]];
  EXPECT_EQ(counts["dense"], 1);
  EXPECT_EQ(counts["30%"], 1);
  EXPECT_EQ(counts["step"], 6);
  EXPECT_EQ(counts["forward"], 6);
  EXPECT_THROW(profiled({"--trace", dir / "none/trace.json"}), Error);
}

TEST(Profile, RefusesWhatItCannotCompare) {
  EXPECT_TRUE(test::has(test::refusal(profile, {"--budget", "5%"}), "--budgets dense,5%"));
  EXPECT_TRUE(test::has(test::refusal(profile, {"--budgets", "dense,"}), "it is empty"));
  EXPECT_TRUE(test::has(test::refusal(profile, {"--mapping", "learned", "--groups", "2"}), "ssn map"));
  EXPECT_TRUE(test::has(test::refusal(profile, {"--turns", "1"}), "--turns"));
}

}  // namespace
}  // namespace ssn
