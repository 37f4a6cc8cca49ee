// Learning which layers share parameters: ssn map, ssn train --mapping learned and FILE.
#include "tools/training/search.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "layers/models/outline.h"
#include "runtime/binding.h"
#include "tests/close.h"
#include "tests/training_run.h"
#include "tools/training/trainer.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::file_text;
using test::has;
using test::output_of;
using test::small_run;
using test::TemporaryDirectory;

/// The message of the Error that a command ends with.
std::string refusal(int (*command)(Comm&, const Arguments&), const Arguments& arguments) {
  try {
    output_of(command, arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}
Json json_file(const std::string& path) {
  return Json::parse(file_text(path));
}
Arguments with(Arguments all, const Arguments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(SearchConfig, IsThePapersOne) {
  TrainConfig config;
  config.epochs = 200;
  config.warmup = 10;
  config.combine = "rr";
  config.budget = "3%";
  config.mapping = "learned";
  config.groups = 5;
  config.allocation = "ref_block";
  config.decay = 0.003;
  config.batch = 17;
  const TrainConfig search = search_config(config);
  EXPECT_EQ(search.budget, "largest");
  EXPECT_EQ(search.mapping, "single");
  EXPECT_EQ(search.groups, 0);
  EXPECT_EQ(search.templates, 4);
  EXPECT_EQ(search.allocation, "resized");
  EXPECT_EQ(search.combine, "emb");
  EXPECT_EQ(search.epochs, 20);
  EXPECT_EQ(search.warmup, 1);
  EXPECT_EQ(parse_epochs(search.lr_steps), (std::vector<double>{6, 12, 16}));
  EXPECT_EQ(search.decay, 0.003);
  EXPECT_EQ(search.batch, 17);
  config.combine = "wavg";
  EXPECT_EQ(search_config(config).combine, "wavg");
  config.epochs = 3;
  EXPECT_EQ(search_config(config).epochs, 1);
  config.epochs = 11;
  EXPECT_EQ(search_config(config).epochs, 2);
  config.search_epochs = 2.1;
  EXPECT_EQ(search_config(config).epochs, 3);
}

TEST(SearchConfig, ThreadsDoNotDependOnRanks) {
  TrainConfig config;
  Plan plan;
  plan.shareable = 1'000'000'000'000;
  const Placement placement = find_placement(1);
  EXPECT_EQ(search_threads_of(config, plan, {3, 32, 32}),
            placement.requested > 0 ? placement.requested : placement.node);
  config.threads = 7;
  EXPECT_EQ(search_threads_of(config, plan, {3, 32, 32}), 7);
  config.search_threads = 3;
  EXPECT_EQ(search_threads_of(config, plan, {3, 32, 32}), 3);
}

TEST(Map, WritesWhatItFound) {
  const TemporaryDirectory dir("map");
  const std::string file = dir / "mapping.json";
  const Arguments run = small_run({"--groups", "3", "--out", file});
  const Json printed = Json::parse(output_of(map, with(run, {"--json"})));
  const Json found = json_file(file), &notes = found["notes"];
  EXPECT_EQ(printed["file"], file);
  EXPECT_EQ(printed["notes"], notes);
  const std::size_t layers = notes["layers"].size();
  EXPECT_EQ(found.size(), layers + 1);
  std::set<int> groups;
  for (const auto& [layer, group] : printed["mapping"].items()) {
    EXPECT_EQ(found[layer], group);
    groups.insert(group.get<int>());
  }
  EXPECT_EQ(groups, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(read_labels(file).size(), layers);
  EXPECT_EQ(notes["network"], "wrn-10-1");
  EXPECT_EQ(notes["groups"], 3);
  EXPECT_EQ(notes["epochs"], 1);
  EXPECT_EQ(notes["seed"], 5);
  EXPECT_EQ(notes["combine"], "emb");
  EXPECT_EQ(notes["softmax"], false);
  EXPECT_GT(notes["inertia"], 0);
  EXPECT_EQ(notes["representations"]["fc"].size(), 24u);
  EXPECT_EQ(notes["centre_distances"]["fc"].size(), 3u);
  ASSERT_EQ(notes["distances"].size(), layers);
  for (std::size_t i = 0; i < layers; ++i)
    for (std::size_t j = 0; j < layers; ++j) {
      EXPECT_EQ(notes["distances"][i][j], notes["distances"][j][i]);
      EXPECT_EQ(notes["distances"][i][j] == 0, i == j);
    }

  EXPECT_TRUE(has(refusal(map, run), "is there already"));
  EXPECT_TRUE(has(output_of(map, with(run, {"--overwrite"})), "nearest other group"));
  EXPECT_EQ(json_file(file), found) << "a second run finds the same";
  output_of(map, with(run, {"--overwrite", "--combine", "wavg", "--softmax"}));
  const Json other = json_file(file);
  EXPECT_EQ(other["notes"]["representations"]["fc"].size(), 4u);
  EXPECT_EQ(other["notes"]["softmax"], true);
}

TEST(Map, FindsGroupsOfNeighboursIfAsked) {
  const TemporaryDirectory dir("map_near");
  const Json found = Json::parse(output_of(
      map, small_run({"--groups", "3", "--near", "1000", "--out", dir / "mapping.json", "--json"})));
  std::vector<int> labels;
  for (const auto& layer : found["notes"]["layers"])
    labels.push_back(found["mapping"][layer.get<std::string>()]);
  EXPECT_TRUE(std::is_sorted(labels.begin(), labels.end()));
  EXPECT_EQ(labels.back(), 2);
  EXPECT_EQ(found["notes"]["near"], 1000);
}

TEST(Map, NeedsNoSearchForOneGroupOrOneALayer) {
  const TemporaryDirectory dir("map_trivial");
  const Json one =
      Json::parse(output_of(map, small_run({"--groups", "1", "--out", dir / "one.json", "--json"})));
  for (const auto& [layer, group] : one["mapping"].items()) EXPECT_EQ(group, 0) << layer;
  EXPECT_EQ(one["notes"]["epochs"], 0);
  const std::string layers = fmt::format("{}", one["mapping"].size());
  const Json all =
      Json::parse(output_of(map, small_run({"--groups", layers, "--out", dir / "all.json", "--json"})));
  int next = 0;
  for (const auto& [layer, group] : all["mapping"].items()) EXPECT_EQ(group, next++) << layer;
}

TEST(Map, RefusesWhatCannotBe) {
  const TemporaryDirectory dir("map_wrong");
  const std::string file = dir / "mapping.json";
  const auto refused = [&](const Arguments& more) {
    return refusal(map, with(small_run({"--out", file}), more));
  };
  EXPECT_TRUE(has(refused({}), "Give --groups P"));
  EXPECT_TRUE(has(refused({"--groups", "100"}), "and each group needs one"));
  EXPECT_TRUE(has(refused({"--groups", "2", "--baseline", "swrn"}), "leave it out"));
  EXPECT_TRUE(has(refused({"--groups", "2", "--out", dir / "nowhere/m.json"}), "there is no directory"));
  EXPECT_TRUE(has(refused({"--groups", "2", "--out", dir / ""}), "is a directory"));
  EXPECT_FALSE(fs::exists(file));
}

TEST(LearnedMapping, TrainsInOneGoAndResumesWithoutASearch) {
  const TemporaryDirectory dir("learned");
  const Arguments learned = small_run({"--mapping", "learned", "--groups", "3", "--json"});
  const Json whole = Json::parse(output_of(train, with(learned, {"--out", dir / "whole"})));
  EXPECT_GT(whole["search_seconds"], 0);
  EXPECT_GT(whole["seconds"], whole["search_seconds"]);
  EXPECT_EQ(whole["epochs"], 3);
  const Json mapping = json_file(dir / "whole/mapping.json"), plan_file = json_file(dir / "whole/plan.json");
  EXPECT_EQ(plan_file["groups"].size(), 3u);
  for (const Json& layer : plan_file["layers"])
    EXPECT_EQ(layer["group"], mapping[layer["name"].get<std::string>()]) << layer["name"];
  output_of(map, small_run({"--groups", "3", "--out", dir / "map.json"}));
  EXPECT_EQ(file_text(dir / "map.json"), file_text(dir / "whole/mapping.json"));

  const Json part =
      Json::parse(output_of(train, with(learned, {"--out", dir / "part", "--stop-after", "5"})));
  fs::remove(dir / "part/mapping.json");
  const Json resumed = Json::parse(output_of(train, {"--resume", dir / "part", "--quiet", "--json"}));
  EXPECT_EQ(resumed["search_seconds"], part["search_seconds"]);
  EXPECT_FALSE(fs::exists(dir / "part/mapping.json"));
  EXPECT_EQ(file_text(dir / "part/checkpoint.h5"), file_text(dir / "whole/checkpoint.h5"));

  const Json measured = Json::parse(output_of(eval, {dir / "whole/checkpoint.h5", "--json", "--quiet"}));
  EXPECT_EQ(measured["test_error1"], whole["test_error1"]);
  output_of(train, {"--config", dir / "whole/config.toml", "--out", dir / "again", "--quiet"});
  EXPECT_TRUE(test::same_but_for_the_command(dir / "again/checkpoint.h5", dir / "whole/checkpoint.h5"));
}

TEST(LearnedMapping, RefusesWhatCannotBeBeforeTheSearch) {
  const TemporaryDirectory dir("learned_wrong");
  const auto refused = [&](const Arguments& more) {
    const std::string message = refusal(train, with(small_run({"--out", dir / "run"}), more));
    EXPECT_FALSE(fs::exists(dir / "run")) << message;
    return message;
  };
  EXPECT_TRUE(has(refused({"--mapping", "learned"}), "needs --groups"));
  EXPECT_TRUE(has(refused({"--mapping", "learned", "--groups", "99"}), "99 groups for"));
  EXPECT_TRUE(has(refused({"--mapping", "learned", "--groups", "3", "--budget", "2"}), "budget"));
  EXPECT_TRUE(
      has(refused({"--mapping", "learned", "--groups", "3", "--baseline", "swrn"}), "--mapping learned"));
  EXPECT_TRUE(has(refused({"--mapping", "lerned", "--groups", "3"}), "did you mean 'learned'?"));
}

TEST(LearnedMapping, ABudgetThatTheGroupsDoNotFitLeavesTheSearch) {
  const TemporaryDirectory dir("learned_total");
  const auto run = [&](std::int64_t total) {
    return small_run({"--mapping", "learned", "--groups", "3", "--count", "total", "--budget",
                      fmt::format("{}", total), "--out", dir / "run"});
  };
  const std::int64_t ordinary = outline("wrn-10-1", {1, 7, 6, 3}).ordinary;
  EXPECT_TRUE(has(refusal(train, run(ordinary + 2)), "too few whatever the groups"));
  EXPECT_FALSE(fs::exists(dir / "run"));
  EXPECT_TRUE(has(refusal(train, run(ordinary + 3)), "are enough"));  // only known behind the search
  EXPECT_TRUE(fs::exists(dir / "run/mapping.json"));
  output_of(train, run(20000));  // there is no run in the way
  EXPECT_TRUE(fs::exists(dir / "run/checkpoint.h5"));
}

TEST(LearnedMapping, StaysWithTheRunsThatUseIt) {
  const TemporaryDirectory dir("learned_stays");
  output_of(train, small_run({"--mapping", "learned", "--groups", "3", "--out", dir / "run"}));
  const std::string found = file_text(dir / "run/mapping.json");
  output_of(train, {"--resume", dir / "run", "--epochs", "4", "--out", dir / "longer", "--quiet"});
  EXPECT_EQ(file_text(dir / "longer/mapping.json"), found);
  output_of(train, small_run({"--mapping", dir / "run/mapping.json", "--out", dir / "run", "--overwrite"}));
  EXPECT_EQ(file_text(dir / "run/mapping.json"), found);
  output_of(train, small_run({"--out", dir / "run", "--overwrite"}));
  EXPECT_FALSE(fs::exists(dir / "run/mapping.json"));
}

TEST(LearnedMapping, ASignalEndsTheSearch) {
  const TemporaryDirectory dir("search_signal");
  std::jthread later([&, run = dir / "run"] {
    while (!fs::exists(run)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGTERM);
  });
  const Arguments run = small_run({"--mapping", "learned", "--groups", "3", "--out", dir / "run",
                                   "--search-epochs", "1000000", "--lr", "0.001"});
  EXPECT_TRUE(has(refusal(train, run), "stopped by a signal before the groups were known"));
  EXPECT_TRUE(fs::is_empty(dir / "run"));
}

TEST(MappingFile, IsNeededOnce) {
  const TemporaryDirectory dir("file");
  const std::string file = dir / "mapping.json";
  output_of(map, small_run({"--groups", "1", "--out", file}));
  Json labels = json_file(file);
  labels["conv1"] = 7;  // numbers need not follow each other
  write_file(file, labels.dump());
  const Arguments run = small_run({"--mapping", file});
  output_of(train, with(run, {"--out", dir / "whole"}));
  EXPECT_EQ(json_file(dir / "whole/plan.json")["groups"].size(), 2u);
  output_of(train, with(run, {"--out", dir / "part", "--stop-after", "2"}));
  fs::remove(file);
  output_of(train, {"--resume", dir / "part", "--quiet"});
  EXPECT_EQ(file_text(dir / "part/checkpoint.h5"), file_text(dir / "whole/checkpoint.h5"));
  output_of(eval, {dir / "whole/checkpoint.h5", "--quiet"});
}

TEST(MappingFile, RefusesWhatIsWrong) {
  const TemporaryDirectory dir("file_wrong");
  const std::string file = dir / "mapping.json";
  output_of(map, small_run({"--groups", "1", "--out", file}));
  const Json right = json_file(file);
  const auto refused = [&](const std::string& text) {
    write_file(file, text);
    const std::string message = refusal(train, small_run({"--mapping", file, "--out", dir / "run"}));
    EXPECT_FALSE(fs::exists(dir / "run")) << message;
    return message;
  };
  Json wrong = right;
  wrong["conv2"] = 0;
  EXPECT_TRUE(has(refused(wrong.dump()), "has no layer 'conv2'"));
  wrong = right;
  wrong.erase("fc");
  EXPECT_TRUE(has(refused(wrong.dump()), "'fc' has no group"));
  EXPECT_TRUE(has(refused("{\"conv1\": 0, " + right.dump().substr(1)), "'conv1' is there twice"));
  wrong = right;
  wrong["fc"] = -1;
  EXPECT_TRUE(has(refused(wrong.dump()), "-1"));
  EXPECT_TRUE(has(refused("{\"conv1\": 0"), "is not JSON"));
  write_file(file, right.dump());
  EXPECT_TRUE(
      has(refusal(train, small_run({"--mapping", file, "--groups", "2", "--out", dir / "run"})), "2"));
}

}  // namespace
}  // namespace ssn
