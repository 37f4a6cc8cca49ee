#include "tools/training/simulate.h"

#include "layers/models/outline.h"
#include "tests/training_run.h"

namespace ssn {
namespace {

const Cluster kPlain{.network = {1e-3, 1e6}};  // 1 ms and 1 MB/s

double busy(const Cluster& cluster, std::int64_t ranks, double bytes) {
  return sum_time(cluster, ranks, bytes).busy;
}

TEST(Simulate, SumsAsTheFormulasSay) {
  EXPECT_EQ(busy(kPlain, 1, 1e6), 0);
  EXPECT_NEAR(busy(kPlain, 4, 1e6), 6 * 0.25, 1e-12);
  EXPECT_NEAR(sum_time(kPlain, 4, 1e6).delay, 2e-3, 1e-12)
      << "the next sum does not wait for messages to land";
  Cluster ring = kPlain;
  ring.algorithm = SumAlgorithm::ring;
  EXPECT_EQ(busy(ring, 1, 1e6), 0);
  EXPECT_NEAR(busy(ring, 2, 1e6), 2 * (1e-3 + 0.5), 1e-12);
  EXPECT_NEAR(busy(ring, 4, 1e6), 6 * (1e-3 + 0.25), 1e-12);
  Cluster tree = kPlain;
  tree.algorithm = SumAlgorithm::tree;
  EXPECT_NEAR(busy(tree, 8, 1e6), 2 * (3e-3 + 1), 1e-12);
}

TEST(Simulate, RanksOfANodeShareItsLink) {
  Cluster nodes = kPlain;
  nodes.ranks_per_node = 4;
  nodes.node = {0, 1e9};
  EXPECT_NEAR(busy(nodes, 4, 1e6), 6 * 0.25e-3, 1e-12) << "one node needs no network";
  EXPECT_NEAR(busy(nodes, 8, 1e6), 6 * 0.25e-3 + 2 * 0.5, 1e-12);
  nodes.algorithm = SumAlgorithm::hierarchical;
  EXPECT_NEAR(busy(nodes, 8, 1e6), 6 * 0.25e-3 + 2 * (1e-3 + 0.5), 1e-12);
  nodes.algorithm = SumAlgorithm::ring;
  EXPECT_NEAR(busy(nodes, 8, 1e6), 14 * (1e-3 + 0.125), 1e-12);
}

TEST(Simulate, SumsSlowTheWorkBesideThem) {
  // From 0.1 s on a sum of 0.1 s; the work of 0.4 s that is left goes on at two thirds of its speed.
  Cluster cluster{.network = {0, 1e6}, .interference = 0.5};
  const SumSchedule schedule{{{0.1, 100'000}}, 0.5, 0.02};
  EXPECT_NEAR(simulate_step(cluster, 2, schedule).seconds, 0.52 + 0.1 / 3, 1e-12);
  // A sum that ends after the work: all of it is slowed.
  cluster.network.bandwidth = 1e5;
  EXPECT_NEAR(simulate_step(cluster, 2, schedule).exposed, 1 - 0.6, 1e-12);
}

TEST(Simulate, ModelledStepsHaveTheFlopsOfTheirLayers) {
  const Arguments arguments = {"--quiet",   "--model",  "wrn-10-1", "--data",   "synthetic:3x32x32x10x1000",
                               "--batch",   "8",        "--json",   "--bucket", "1",
                               "--budgets", "dense,5%", "--tflops", "0.001",    "--gbs",
                               "1000000"};
  const auto out = nlohmann::json::parse(test::output_of(profile, arguments));
  const double forward = 8 * forward_flops("wrn-10-1", {3, 32, 32, 10});
  const auto& dense = out["budgets"][0]["schedule"];
  const double first = 8 * 2.0 * 32 * 32 * 16 * 27;  // the images want no gradient
  EXPECT_NEAR(dense["backward_end"].get<double>(), (3 * forward - first) / 1e9, 1e-9);
  EXPECT_GT(dense["sums"].size(), 3u);
  EXPECT_GT(dense["sums"][0]["after"].get<double>(), forward / 1e9);
  std::int64_t bytes = 0;
  for (const auto& sum : dense["sums"]) bytes += sum["bytes"].get<std::int64_t>();
  EXPECT_EQ(bytes, 4 * out["budgets"][0]["parameters"].get<std::int64_t>());
  EXPECT_LT(dense["sums"][0]["after"], out["budgets"][1]["schedule"]["sums"][0]["after"])
      << "what all layers share is complete later";
  EXPECT_TRUE(test::has(test::refusal(profile, {"--tflops", "1"}), "--json"));
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
