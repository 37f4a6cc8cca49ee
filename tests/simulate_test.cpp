#include "tools/training/simulate.h"

#include "tests/training_run.h"

namespace ssn {
namespace {

const Cluster kPlain{.network = {1e-3, 1e6}};  // 1 ms and 1 MB/s

TEST(Simulate, SumsAsTheFormulasSay) {
  EXPECT_EQ(sum_seconds(kPlain, 1, 1e6), 0);
  EXPECT_NEAR(sum_seconds(kPlain, 2, 1e6), 2 * (1e-3 + 0.5), 1e-12);
  EXPECT_NEAR(sum_seconds(kPlain, 4, 1e6), 6 * (1e-3 + 0.25), 1e-12);
  Cluster tree = kPlain;
  tree.algorithm = SumAlgorithm::tree;
  EXPECT_NEAR(sum_seconds(tree, 8, 1e6), 2 * (3e-3 + 1), 1e-12);
}

TEST(Simulate, PiecesPayTheLatencyEach) {
  Cluster pieces = kPlain;
  pieces.piece = 400'000;
  EXPECT_NEAR(sum_seconds(pieces, 2, 1e6), 2 * 2 * (1e-3 + 0.2) + 2 * (1e-3 + 0.1), 1e-12);
}

TEST(Simulate, RanksOfANodeShareItsLink) {
  Cluster nodes = kPlain;
  nodes.ranks_per_node = 4;
  nodes.node = {0, 1e9};
  EXPECT_NEAR(sum_seconds(nodes, 4, 1e6), 6 * 0.25e-3, 1e-12) << "one node needs no network";
  nodes.algorithm = SumAlgorithm::hierarchical;
  EXPECT_NEAR(sum_seconds(nodes, 8, 1e6), 6 * 0.25e-3 + 2 * (1e-3 + 0.5), 1e-12);
}

TEST(Simulate, SumsHideBehindWorkUntilItIsDone) {
  // Each of the two sums takes 0.1 s on two ranks.
  const Cluster fast{.network = {0, 1e6}};
  const SumSchedule schedule{{{0.10, 100'000}, {0.15, 100'000}}, 0.5, 0.02};
  const SimulatedStep hidden = simulate_step(fast, 2, schedule);
  EXPECT_NEAR(hidden.seconds, 0.52, 1e-12);
  EXPECT_EQ(hidden.exposed, 0);
  const SumSchedule late{{{0.40, 100'000}, {0.45, 100'000}}, 0.5, 0.02};
  const SimulatedStep exposed = simulate_step(fast, 2, late);
  EXPECT_NEAR(exposed.exposed, 0.1, 1e-12);  // the second starts at 0.5
  EXPECT_NEAR(exposed.seconds, 0.62, 1e-12);
  Cluster twice = fast;
  twice.speed = 2;
  EXPECT_NEAR(simulate_step(twice, 2, late).seconds, 0.2 + 0.2 + 0.01, 1e-12);
  EXPECT_NEAR(simulate_step(fast, 1, late).seconds, 0.52, 1e-12);
}

TEST(Simulate, TakesWhatProfilePrints) {
  const test::TemporaryDirectory dir("simulate");
  const std::string path = dir / "profile.json";
  std::ofstream(path) << test::output_of(
      profile, {"--quiet", "--threads", "1", "--model", "wrn-10-1", "--data", "synthetic:1x7x6x3x50",
                "--batch", "12", "--turns", "2", "--steps", "2", "--budgets", "dense,5%", "--json"});
  const auto out = nlohmann::json::parse(
      test::output_of(simulate, {path, "--network", "10us,1MB", "--ranks", "1,64", "--json"}));
  ASSERT_EQ(out["steps"].size(), 4u);
  EXPECT_EQ(out["steps"][0]["exposed_seconds"], 0);
  EXPECT_GT(out["steps"][2]["exposed_seconds"], 0.1) << "dense, 64 ranks: 300 KB at 1 MB/s";
  EXPECT_GT(out["steps"][3]["speedup"], 2);
  EXPECT_TRUE(test::has(test::output_of(simulate, {path}), "4096"));
}

TEST(Simulate, RefusesWhatItCannotRead) {
  const test::TemporaryDirectory dir("refused");
  const std::string path = dir / "profile.json";
  EXPECT_TRUE(test::has(test::refusal(simulate, {path}), "cannot read"));
  EXPECT_TRUE(test::has(test::refusal(simulate, {dir / ""}), "cannot read"));
  for (const std::string text :
       {"", "[]", "{\"network\": 3}", "{\"network\":\"x\",\"batch\":1,\"ranks\":1,\"budgets\":[1]}"}) {
    std::ofstream(path) << text;
    EXPECT_TRUE(test::has(test::refusal(simulate, {path}), "not what ssn profile --json prints")) << text;
  }
  std::ofstream(path) << R"({"network":"x","batch":1,"ranks":1,"budgets":[]})";
  EXPECT_TRUE(test::has(test::refusal(simulate, {path}), "no budgets"));
  for (const std::string network : {"", "fast", "5us", "5us,", "5us,10", "-5us,1GB", "5us,0GB", "nan,1GB"})
    EXPECT_TRUE(test::has(test::refusal(simulate, {path, "--network", network}), "--network: expected"))
        << network;
  for (const std::string ranks : {"", "0", "2,", ",2", "4097", "2;4", "x"})
    EXPECT_TRUE(test::has(test::refusal(simulate, {path, "--ranks", ranks}), "--ranks: expected")) << ranks;
}

}  // namespace
}  // namespace ssn
