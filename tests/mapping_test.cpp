// Mappings: which layers share, as a kind or a file says it, and what is said of wrong ones.
#include "ssn/mapping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tests/usage_error.h"

namespace ssn {
namespace {

using test::usage_error_of;
using Groups = std::vector<int>;

WeightRequest layer(const std::string& name, const Shape& shape, WeightKind kind = WeightKind::linear) {
  return {name, kind, shape, 9};
}

/// Two kinds, three shapes; fc2 has the shape of a convolution's matrix but another kind.
std::vector<WeightRequest> network() {
  return {layer("conv1", {4, 3, 3, 3}, WeightKind::convolution),
          layer("conv2", {4, 4, 3, 3}, WeightKind::convolution), layer("fc1", {7, 5}),
          layer("conv3", {4, 3, 3, 3}, WeightKind::convolution), layer("rnn", {7, 5}, WeightKind::gru)};
}

Groups groups_of(const Mapping& mapping) {
  return assign_groups(mapping, network(), 3);
}

TEST(MappingTest, RandomGroupsAreNeverEmptyAndDependOnTheSeedAlone) {
  std::vector<WeightRequest> layers;
  std::set<Groups> seen;
  for (int n = 1; n <= 12; ++n) {
    layers.push_back(layer(fmt::format("layer{}", n), {2, 3}));
    for (int groups = 1; groups <= n; ++groups)
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const Groups label = assign_groups({MappingKind::random, groups}, layers, seed);
        EXPECT_EQ(label, assign_groups({MappingKind::random, groups}, layers, seed));
        int next = 0;  // numbered by appearance, all there
        for (const int l : label) {
          ASSERT_LE(l, next);
          next = std::max(next, l + 1);
        }
        ASSERT_EQ(next, groups);
        if (n == 12 && groups == 3) seen.insert(label);
      }
  }
  EXPECT_EQ(seen.size(), 20u);
}

TEST(MappingTest, KindsKnowTheirGroups) {
  EXPECT_EQ(groups_of({MappingKind::single}), (Groups{0, 0, 0, 0, 0}));
  EXPECT_EQ(groups_of({MappingKind::single, 1}), (Groups{0, 0, 0, 0, 0}));
  EXPECT_EQ(groups_of({MappingKind::shape}), (Groups{0, 1, 2, 0, 3}));
  EXPECT_EQ(groups_of({MappingKind::type}), (Groups{0, 0, 1, 0, 2}));
  EXPECT_EQ(groups_of({MappingKind::shape, 4}), groups_of({MappingKind::shape}));
  const std::string error = usage_error_of([] { groups_of({MappingKind::shape, 5}); });
  EXPECT_NE(error.find("'shape' gives 4 groups, but 5 are asked for"), std::string::npos) << error;
  EXPECT_NE(usage_error_of([] { groups_of({MappingKind::type, 2}); }).find("gives 3"), std::string::npos);
  EXPECT_NE(usage_error_of([] { groups_of({MappingKind::single, 2}); }).find("found 2"), std::string::npos);
  EXPECT_NE(usage_error_of([] { groups_of({MappingKind::random}); }).find("1 to 5"), std::string::npos);
  EXPECT_NE(usage_error_of([] {
              groups_of({MappingKind::random, 6});
            }).find("6 groups for 5 layers"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] { groups_of({MappingKind::type, -1}); }).find("-1"), std::string::npos);
}

TEST(MappingTest, AlbertSharesTheSamePlaceOfAllBlocks) {
  const std::vector<WeightRequest> layers = {layer("stem1.conv", {4, 3}),
                                             layer("layer1.0.conv1", {4, 4}),
                                             layer("layer1.0.fc", {4, 4}),
                                             layer("layer1.10.conv1", {4, 4}),
                                             layer("layer1.10.fc", {4, 4}),
                                             layer("layer2.0.conv1", {4, 4}),
                                             layer("layer2.1.conv1", {5, 4}),  // not the shape of the other
                                             layer("dense1.unit2.a", {4, 4}),
                                             layer("dense1.unit31.a", {4, 4}),
                                             layer("encoder.layer.0.attention.query", {2, 2}),
                                             layer("encoder.layer.1.attention.query", {2, 2}),
                                             layer("encoder.layer.1.attention.key", {2, 2}),
                                             layer("fc1", {4, 4}),
                                             layer("fc2", {4, 4}),
                                             layer(".7.", {4, 4}),
                                             layer("", {4, 4})};
  EXPECT_EQ(assign_groups({MappingKind::albert}, layers, 3),
            (Groups{0, 1, 2, 1, 2, 3, 4, 5, 5, 6, 6, 7, 8, 9, 10, 11}));
  EXPECT_NE(usage_error_of([&] {
              assign_groups({MappingKind::albert, 2}, layers, 3);
            }).find("'albert' gives 12 groups, but 2 are asked for"),
            std::string::npos);
}

TEST(MappingTest, LabelsAreRenumberedByAppearance) {
  const Labels labels{{"conv1", 40}, {"conv2", 7}, {"conv3", 40}, {"fc1", 0}, {"rnn", 7}};
  for (const MappingKind kind : {MappingKind::file, MappingKind::learned}) {
    EXPECT_EQ(groups_of({.kind = kind, .labels = labels}), (Groups{0, 1, 2, 0, 1}));
    EXPECT_EQ(groups_of({.kind = kind, .groups = 3, .labels = labels}), (Groups{0, 1, 2, 0, 1}));
  }
}

TEST(MappingTest, LabelsThatDoNotFitTheNetwork) {
  const Labels good{{"conv1", 0}, {"conv2", 1}, {"conv3", 0}, {"fc1", 0}, {"rnn", 1}};
  const auto error_of = [](const Labels& labels, int groups = 0) {
    return usage_error_of([&] { groups_of({MappingKind::file, groups, "my.json", labels}); });
  };
  EXPECT_EQ(error_of(good), "");
  Labels unknown = good;
  unknown["convv2"] = 1;
  EXPECT_NE(error_of(unknown).find("my.json: the network has no layer 'convv2'; did you mean 'conv2'?"),
            std::string::npos)
      << error_of(unknown);
  unknown = good;
  unknown["something.else"] = 1;
  EXPECT_NE(error_of(unknown).find("'something.else'; `ssn plan` lists its layers"), std::string::npos)
      << error_of(unknown);
  Labels missing = good;
  missing.erase("fc1");
  EXPECT_NE(error_of(missing).find("my.json: layer 'fc1' has no group number"), std::string::npos)
      << error_of(missing);
  EXPECT_NE(error_of({}).find("'conv1' has no group"), std::string::npos);
  EXPECT_NE(error_of(good, 3).find("my.json gives 2 groups, but 3 are asked for"), std::string::npos)
      << error_of(good, 3);
}

TEST(MappingTest, LearnedNeedsItsSearchUnlessOneGroupIsWanted) {
  EXPECT_EQ(groups_of({MappingKind::learned, 1}), (Groups{0, 0, 0, 0, 0}));
  for (const int groups : {0, 2}) {
    EXPECT_THROW(groups_of({MappingKind::learned, groups}), Error);
    EXPECT_EQ(usage_error_of([&] {
                try {
                  groups_of({MappingKind::learned, groups});
                } catch (const UsageError&) {
                  throw;
                } catch (const Error& e) {
                  EXPECT_NE(std::string(e.what()).find("search has not run"), std::string::npos) << e.what();
                }
              }),
              "");
  }
  EXPECT_NE(usage_error_of([] {
              groups_of({MappingKind::learned, 6});
            }).find("6 groups for 5 layers"),
            std::string::npos);
}

TEST(MappingTest, AMappingIsAKindOrAFile) {
  for (const char* name : {"single", "random", "shape", "type", "albert", "learned"})
    EXPECT_EQ(name_of(parse_mapping(name).kind), name);
  const std::string error = usage_error_of([] { parse_mapping("randon"); });
  EXPECT_NE(error.find("'randon' is neither a mapping (did you mean 'random'?) nor a file"),
            std::string::npos)
      << error;
  EXPECT_NE(usage_error_of([] { parse_mapping("no/such/file.json"); }).find("learned"), std::string::npos);
  EXPECT_NE(usage_error_of([] { parse_mapping("file"); }), "");
  EXPECT_NE(usage_error_of([] { parse_mapping(""); }), "");
  const std::string path = testing::TempDir() + "mapping_test.json";
  std::ofstream(path) << R"({"fc1": 3, "note": "by hand"})";
  const Mapping file = parse_mapping(path);
  EXPECT_EQ(file.kind, MappingKind::file);
  EXPECT_EQ(file.source, path);
  EXPECT_TRUE(file.labels.empty());
  EXPECT_EQ(read_labels(path), (Labels{{"fc1", 3}}));
}

TEST(MappingTest, FilesHaveNumbersAndNotes) {
  const Labels labels = parse_labels(
      R"({"a": 2, "why": "b", "net": {"a": 1, "a": 2}, "list": [1, 2], "yes": true, "none": null, "b": 0})",
      "x");
  EXPECT_EQ(labels, (Labels{{"a", 2}, {"b", 0}}));
  EXPECT_EQ(parse_labels("{}", "x"), Labels{});
}

TEST(MappingTest, WrongFilesAreNamedWithThePlace) {
  const auto error_of = [](const std::string& json) {
    return usage_error_of([&] { parse_labels(json, "my.json"); });
  };
  for (const auto& [json, place] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a": -1})", "the group of 'a' is -1"},
           {R"({"a": 1.5})", "the group of 'a' is 1.5"},
           {R"({"a": 1.0})", "the group of 'a' is 1.0"},
           {R"({"a": 2147483648})", "2147483648"},
           {R"({"a": 99999999999999999999999})", "the group of 'a'"},
           {R"({"a": 1, "b": 2, "a": 1})", "'a' is there twice"},
           {R"({"note": "x", "note": "y"})", "'note' is there twice"},
           {"{\"a\": 1,\n \"b\" 2}", "line 2"},
           {"", "line 1"},
           {"{\"a\": 1} x", "line 1"},
           {"{\"a\xff\": 1}", "line 1"},
           {"[1, 2]", "array"},
           {"7", "number"}}) {
    const std::string error = error_of(json);
    EXPECT_NE(error.find("my.json"), std::string::npos) << json << ": " << error;
    EXPECT_NE(error.find(place), std::string::npos) << json << ": " << error;
    EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
  }
  EXPECT_NE(usage_error_of([] { read_labels("no/such.json"); }).find("no/such.json"), std::string::npos);
  EXPECT_NE(usage_error_of([] { read_labels(testing::TempDir()); }).find("not a file"), std::string::npos);
}

}  // namespace
}  // namespace ssn
