// Masked-language modelling through the command line: a small network learns a small language.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "datasets/dataset.h"
#include "tests/training_run.h"

namespace ssn::test {
namespace {

Arguments text_run(const std::string& data, const Arguments& more) {
  Arguments all = {"--quiet", "--threads",   "1",     "--model",      "bert-1-64", "--data",   data,
                   "--batch", "16",          "--lr",  "0.002",        "--length",  "16",       "--seed",
                   "5",       "--optimizer", "adamw", "--eval-every", "0",         "--budget", "dense"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The error in percent of always predicting the most frequent token.
double constant_error(const SampleSet& set) {
  std::vector<std::int32_t> samples(static_cast<std::size_t>(set.size()));
  std::iota(samples.begin(), samples.end(), 0);
  const Batch all = set.make(samples, Random(0, "unused"), false);
  std::map<std::int32_t, int> counts;
  for (const std::int32_t token : all.labels.span<std::int32_t>()) ++counts[token];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return 100 - 100.0 * most->second / static_cast<double>(all.size());
}

TEST(TextTraining, LearnsALanguage) {
  const TemporaryDirectory dir("text");
  constexpr const char* kData = "synthetic-text:1000";
  const Dataset data = load_dataset(kData, {.seed = 5, .text = {.length = 16}});
  const double constant = constant_error(*data.test);
  const auto result = nlohmann::json::parse(output_of(
      train, text_run(kData, {"--epochs", "4", "--warmup", "0.5", "--out", dir / "run", "--json"})));
  EXPECT_LT(result["test_error1"].get<double>(), constant - 15) << "always the same: " << constant;
  std::string vocabulary;
  for (const std::string& piece : data.facts.vocabulary) vocabulary += piece + "\n";
  EXPECT_EQ(file_text(dir / "run/vocab.txt"), vocabulary);

  const auto measured = [&](const std::string& other) {
    return nlohmann::json::parse(
        output_of(eval, {dir / "run/checkpoint.h5", "--data", other, "--quiet", "--json"}))["test_error1"];
  };
  EXPECT_EQ(measured(kData), result["test_error1"]);
  std::ofstream other(dir / "other.txt");
  for (int i = 0; i < 20; ++i) other << "a text in another language\n";
  other.close();
  EXPECT_GT(measured("text:" + dir / "other.txt"), 90) << "by the checkpoint's vocabulary";
}

/// A run goes on with the vocabulary that its checkpoint has.
TEST(TextTraining, GoesOnWithItsVocabulary) {
  const TemporaryDirectory dir("text_resume");
  const std::string vocabulary = dir / "vocab.txt", spec = "text:" + dir / "a.txt";
  std::ofstream text(dir / "a.txt");
  for (int i = 0; i < 40; ++i) text << "one two three " << i % 7 << " four\n\n";
  text.close();
  std::ofstream(vocabulary) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\nthree\nfour\n1\n2\n3\n";
  const auto run = [&](const std::string& out, const Arguments& more) {
    Arguments all = {"--epochs", "3", "--out", dir / out, "--vocab", vocabulary};
    all.insert(all.end(), more.begin(), more.end());
    output_of(train, text_run(spec, all));
  };
  run("whole", {});
  run("parts", {"--stop-after", "2"});
  const std::string checkpoint = dir / "parts/checkpoint.h5";
  const std::string kept = file_text(vocabulary);
  std::ofstream(vocabulary) << kept << "more\n";
  EXPECT_TRUE(has(refusal(train, {"--quiet", "--resume", checkpoint}),
                  "is not the checkpoint's vocabulary: line 13 is 'more', there it is missing"));
  std::filesystem::remove(vocabulary);
  output_of(train, {"--quiet", "--resume", checkpoint});
  EXPECT_EQ(file_text(checkpoint), file_text(dir / "whole/checkpoint.h5"));
  EXPECT_EQ(file_text(dir / "parts/vocab.txt"), kept);
  EXPECT_TRUE(has(refusal(train, {"--quiet", "--resume", checkpoint, "--length", "8"}),
                  "was trained with --length 16, found 8"));
}

TEST(TextTraining, PlansWithoutReading) {
  const Arguments plan_of = {"--model", "bert-1-64", "--data", "text:/no/such/file"};
  EXPECT_TRUE(has(refusal(plan, plan_of), "for text --vocab-size N or --vocab FILE"));
  Arguments sized = plan_of;
  sized.insert(sized.end(), {"--vocab-size", "500", "--length", "20", "--json"});
  const auto json = nlohmann::json::parse(output_of(plan, sized));
  EXPECT_EQ(json["vocabulary"], 500);
  EXPECT_EQ(json["length"], 20);
  sized.pop_back();
  const std::string text = output_of(plan, sized);
  EXPECT_TRUE(has(text, "forward, for one sequence"));
  EXPECT_TRUE(has(text, "of the forward pass of one sequence"));
  EXPECT_EQ(text.find("image"), text.npos) << text;
}

}  // namespace
}  // namespace ssn::test
