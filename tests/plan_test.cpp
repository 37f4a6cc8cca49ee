// Plans: mappings, templates, counts, start values.
#include "ssn/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "layers/models/zoo.h"
#include "runtime/random.h"
#include "ssn/initialise.h"
#include "ssn/report.h"
#include "tests/usage_error.h"

namespace ssn {
namespace {

/// Takes requests down.
class Notebook : public WeightFactory {
 public:
  std::uint64_t seed() const override { return 0; }
  int request(WeightRequest request) override {
    requests.push_back(std::move(request));
    return static_cast<int>(requests.size()) - 1;
  }
  Var use(int, const WeightFormat&) override { return {}; }
  std::vector<WeightRequest> requests;
};

using test::usage_error_of;

WeightRequest linear_layer(std::int64_t out, std::int64_t in) {
  static int number = 0;
  return {fmt::format("layer{}", number++), WeightKind::linear, Shape{out, in}, in};
}

Plan plan_of(std::initializer_list<Shape> shapes, const std::string& budget, PlanOptions options = {}) {
  std::vector<WeightRequest> requests;
  for (const Shape& s : shapes) requests.push_back(linear_layer(s[0], s[1]));
  options.budget = Budget::parse(budget);
  return make_plan(requests, 11, options);
}

Plan wide_plan(const std::string& budget, PlanOptions options = {}, std::int64_t classes = 10) {
  Parameters parameters;
  Notebook notebook;
  make_network("wrn-28-10", {3, 32, 32, classes}, {notebook, parameters});
  options.budget = Budget::parse(budget);
  return make_plan(notebook.requests, parameters.count(Section::ordinary), options);
}

TEST(PlanTest, ThreeMethods) {
  const Plan p = plan_of({{4, 5}, {3, 7}, {9, 11}, {6, 10}}, "60");
  EXPECT_EQ(p.shareable, 20 + 21 + 99 + 60);
  EXPECT_EQ(p.original, p.shareable + 11);
  EXPECT_EQ(p.layers[0].method, Method::templates);
  EXPECT_EQ(p.layers[0].offsets, (std::vector<std::int64_t>{0, 20, 40}));
  EXPECT_EQ(p.layers[1].method, Method::templates);
  EXPECT_EQ(p.layers[1].offsets, (std::vector<std::int64_t>{0, 21}));
  EXPECT_EQ(p.layers[2].method, Method::upsample);
  EXPECT_TRUE(p.layers[2].offsets.empty());
  EXPECT_EQ(p.layers[2].tiles, 2);
  EXPECT_EQ(p.layers[3].method, Method::exact);
  EXPECT_EQ(p.layers[3].offsets, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(p.total, 11 + 60 + 2 * 24 + (3 + 2) * 25 + 9);
  EXPECT_EQ(p.budget, 60);
  EXPECT_EQ(p.unused, 0);
}

TEST(PlanTest, ExcessIsUnused) {
  const Plan p = plan_of({{4, 5}, {2, 10}}, "41");
  EXPECT_EQ(p.unused, 1);
  EXPECT_EQ(plan_of({{4, 5}, {2, 10}}, "39").unused, 19);
}

TEST(PlanTest, DenseIsAGroupALayer) {
  const Plan p = plan_of({{4, 5}, {3, 7}, {3, 7}}, "dense");
  ASSERT_EQ(p.groups.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(p.layers[i].group, static_cast<int>(i));
    EXPECT_EQ(p.layers[i].method, Method::exact);
    EXPECT_EQ(p.groups[i].parameters, p.layers[i].size());
  }
  EXPECT_EQ(p.total, p.original);
  EXPECT_EQ(p.unused + p.unassigned, 0);
  PlanOptions contradicting;
  contradicting.mapping = {MappingKind::random, 2};
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}, {3, 7}}, "dense", contradicting); }), "");
}

TEST(PlanTest, LargestAndUnassigned) {
  EXPECT_EQ(plan_of({{4, 5}, {3, 7}, {2, 3}}, "largest").budget, 21);
  PlanOptions alone;
  alone.mapping = {MappingKind::random, 2};
  const Plan p = plan_of({{4, 5}, {3, 7}}, "100", alone);
  EXPECT_EQ(p.budget, 41);
  EXPECT_EQ(p.unassigned, 59);
}

using Starts = std::vector<std::int64_t>;

TEST(PlanTest, EveryCombinationCountsWhatItLearns) {
  const auto total = [](Combine combine, Upsample upsample, MaskScope masks = MaskScope::group) {
    PlanOptions o;
    o.combine = combine;
    o.upsample = upsample;
    o.masks = masks;
    o.embedding = 5;
    o.window = 4;
    // 3, 2, 3 and 1 templates; 3 and 2 tiles
    return plan_of({{4, 5}, {3, 7}, {5, 4}, {6, 10}, {11, 11}, {7, 9}}, "60", o).total - 11 - 60;
  };
  EXPECT_EQ(total(Combine::wavg, Upsample::repeat), 3 + 2 + 3);
  EXPECT_EQ(total(Combine::emb, Upsample::repeat), 3 * 5 + (3 + 2) * 6);
  for (const Combine c : {Combine::avg, Combine::rr}) {
    EXPECT_EQ(total(c, Upsample::repeat), 0);
    EXPECT_EQ(total(c, Upsample::inter), 0);
    EXPECT_EQ(total(c, Upsample::mask), 2 * 4);
    EXPECT_EQ(total(c, Upsample::mask, MaskScope::layer), 3 * 4);
  }
  EXPECT_EQ(total(Combine::emb, Upsample::mask), 3 * 5 + (3 + 2) * 6 + 2 * 4);
}

TEST(PlanTest, RoundRobinTakesTheTemplateOfItsTurn) {
  PlanOptions o;
  o.combine = Combine::rr;
  const auto starts = [&](std::initializer_list<Shape> shapes, const std::string& budget) {
    Starts first;
    for (const PlannedLayer& l : plan_of(shapes, budget, o).layers) {
      EXPECT_EQ(l.method, Method::exact);
      EXPECT_EQ(l.offsets.size(), 1u);
      first.push_back(l.offsets.at(0));
    }
    return first;
  };
  for (const Allocation rule : {Allocation::cursor, Allocation::ref_block}) {
    o.allocation = rule;
    o.templates = 8;
    EXPECT_EQ(starts({{6, 9}, {6, 9}, {5, 8}, {6, 9}, {6, 4}, {6, 9}}, "211"),
              (Starts{0, 54, 80, 0, 96, 108}));
    o.templates = 2;
    EXPECT_EQ(starts({{18, 5}, {5, 6}, {4, 9}, {18, 5}}, "200"), (Starts{0, 30, 0, 90}));
  }
  // A layer that is larger than the group has its turn too.
  o.templates = 8;
  EXPECT_EQ(plan_of({{4, 5}, {20, 20}, {4, 5}}, "70", o).layers[2].offsets, (Starts{40}));
  // Resized templates are taken in turns as well.
  o.allocation = Allocation::resized;
  o.templates = 3;
  const Plan p = plan_of({{4, 5}, {20, 20}, {4, 5}, {2, 3}}, "70", o);
  for (int l = 0; l < 4; ++l) EXPECT_EQ(p.layers[l].offsets, (Starts{l % 3 * 23}));
  EXPECT_EQ(p.total, 11 + 70);
}

/// The grids of all layers, "rows x cols".
std::vector<std::string> grids(const Plan& plan) {
  std::vector<std::string> result;
  for (const PlannedLayer& l : plan.layers) result.push_back(fmt::format("{}x{}", l.rows, l.cols));
  return result;
}

TEST(PlanTest, ResizedTemplatesAreTheSameForAllLayers) {
  PlanOptions o;
  o.allocation = Allocation::resized;
  o.templates = 4;
  const Plan p = plan_of({{4, 27}, {6, 36}, {6, 4}, {7, 6}}, "300", o);
  EXPECT_EQ(grids(p), (std::vector<std::string>{"3x25", "3x25", "10x7", "9x8"}));
  for (const PlannedLayer& l : p.layers) {
    EXPECT_EQ(l.method, Method::templates);
    EXPECT_EQ(l.offsets, (Starts{0, 75, 150, 225}));
    EXPECT_EQ(l.tiles, 1);
  }
  EXPECT_EQ(p.unused, 0);
  EXPECT_EQ(p.total, 11 + 300 + 4 * 24 + 4 * 25);
  EXPECT_EQ(grids(plan_of({{2, 30}, {30, 2}, {2, 50}}, "500", o)),
            (std::vector<std::string>{"2x62", "43x2", "2x62"}));
  // 75 of 77 and 72 of 77 elements of each template: what the wider grid reaches is used.
  o.templates = 3;
  const Plan odd = plan_of({{5, 6}, {4, 9}}, "232", o);
  EXPECT_EQ(grids(odd), (std::vector<std::string>{"8x9", "5x15"}));
  EXPECT_EQ(odd.unused, 232 - 3 * 75);
  // Sides of one element; fewer parameters than templates; one layer that has all it needs.
  EXPECT_EQ(grids(plan_of({{1, 40}, {40, 1}, {1, 1}}, "30", o)),
            (std::vector<std::string>{"1x10", "10x1", "3x3"}));
  const Plan few = plan_of({{4, 5}, {3, 7}}, "2", o);
  EXPECT_EQ(few.layers[0].offsets, (Starts{0, 1}));
  EXPECT_EQ(grids(few), (std::vector<std::string>{"1x1", "1x1"}));
  EXPECT_EQ(plan_of({{4, 5}, {3, 7}}, "1", o).layers[0].method, Method::exact);
  EXPECT_FALSE(plan_of({{4, 5}}, "dense", o).layers[0].resized());
  EXPECT_TRUE(plan_of({{4, 5}}, "21", o).unassigned == 1);
}

TEST(PlanTest, InterpolationTakesTheGroupAsAMatrix) {
  PlanOptions o;
  o.upsample = Upsample::inter;
  const auto grid = [&](Inter rule, const Shape& shape, const std::string& budget) {
    o.inter = rule;
    const std::vector<WeightRequest> one{{"big", WeightKind::convolution, shape, 9}};
    o.budget = Budget::parse(budget);
    const Plan p = make_plan(one, 0, o);
    EXPECT_EQ(p.layers[0].method, Method::upsample);
    EXPECT_EQ(p.layers[0].offsets, (Starts{0}));
    EXPECT_EQ(p.layers[0].tiles, 1);
    EXPECT_EQ(p.unused, p.budget - p.layers[0].rows * p.layers[0].cols);
    EXPECT_EQ(p.total, p.budget);
    return grids(p)[0];
  };
  EXPECT_EQ(grid(Inter::line, {4, 4, 3, 3}, "50"), "1x50");
  EXPECT_EQ(grid(Inter::aspect, {6, 3, 3, 3}, "70"), "3x23");
  EXPECT_EQ(grid(Inter::aspect, {9, 14}, "41"), "5x8");
  EXPECT_EQ(grid(Inter::aspect, {18, 5}, "40"), "12x3");
  EXPECT_EQ(grid(Inter::aspect, {1, 99}, "7"), "1x7");
  EXPECT_EQ(grid(Inter::aspect, {99, 1}, "7"), "7x1");
  EXPECT_EQ(grid(Inter::aspect, {99, 98}, "1"), "1x1");
  EXPECT_EQ(grid(Inter::ref, {6, 5, 3, 3}, "80"), "3x18");
  EXPECT_EQ(grid(Inter::ref, {10, 16}, "60"), "6x10");
  const std::string error = usage_error_of([&] { grid(Inter::ref, {40, 40, 3, 3}, "20"); });
  EXPECT_NE(error.find("aspect"), std::string::npos) << error;
  EXPECT_NE(error.find("40x40x3x3"), std::string::npos) << error;
  EXPECT_NE(usage_error_of([&] { grid(Inter::ref, {1, 99}, "9"); }), "");  // would be a matrix without rows
}

TEST(PlanTest, TheBudgetMayCoverEverything) {
  PlanOptions o;
  o.count = Count::total;
  const std::initializer_list<Shape> shapes{{4, 5}, {3, 7}, {9, 11}, {6, 10}};
  for (const Combine c : {Combine::emb, Combine::wavg, Combine::avg, Combine::rr})
    for (std::int64_t wanted = 300; wanted < 900; wanted += 7) {
      o.combine = c;
      const Plan p = plan_of(shapes, std::to_string(wanted), o);
      EXPECT_EQ(p.total + p.unassigned, wanted);
      EXPECT_GE(p.unassigned, 0);
      PlanOptions groups = o;
      groups.count = Count::groups;
      EXPECT_EQ(plan_of(shapes, std::to_string(p.budget), groups).total, p.total);
      EXPECT_GT(plan_of(shapes, std::to_string(p.budget + 1), groups).total, wanted);
    }
  o.combine = Combine::avg;
  EXPECT_EQ(plan_of(shapes, "100%", o).total, 211);  // of all, the ordinary ones too
  EXPECT_EQ(plan_of(shapes, "150", o).budget, 150 - 11);
  o.combine = Combine::emb;
  const std::string error = usage_error_of([&] { plan_of(shapes, "20", o); });
  EXPECT_NE(error.find("20 trainable parameters in all are too few"), std::string::npos) << error;
  EXPECT_NE(error.find("norms and biases take 11"), std::string::npos) << error;
  const std::string enough =
      error.substr(error.rfind("; ") + 2, error.rfind(" are enough") - error.rfind("; ") - 2);
  EXPECT_LE(plan_of(shapes, enough, o).total, std::stoll(enough));
  for (const char* word : {"largest", "dense"})
    EXPECT_NE(usage_error_of([&] { plan_of(shapes, word, o); }).find(word), std::string::npos);
  o.mapping = {MappingKind::random, 4};  // all alone
  EXPECT_EQ(plan_of(shapes, "1000", o).unassigned, 1000 - 211);
}

TEST(PlanTest, WrongOptions) {
  PlanOptions o;
  o.templates = 0;
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}}, "9", o); }).find("templates"), std::string::npos);
  o = {};
  o.window = 0;
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}}, "9", o); }).find("window"), std::string::npos);
  o = {};
  o.embedding = 0;
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}}, "9", o); }).find("embedding"), std::string::npos);
  o = {};
  o.softmax = true;
  o.combine = Combine::rr;
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}}, "9", o); }).find("softmax"), std::string::npos);
  o = {};
  o.mapping = {MappingKind::random, 3};
  EXPECT_NE(usage_error_of([&] {
              plan_of({{4, 5}, {5, 6}}, "9", o);
            }).find("3 groups for 2 layers"),
            std::string::npos);
  o.mapping = {MappingKind::random, 0};
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}}, "9", o); }), "");
  o.mapping = {MappingKind::single, 2};
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}, {5, 6}}, "9", o); }), "");
  o.mapping = {MappingKind::random, 2};
  const std::string few = usage_error_of([&] { plan_of({{4, 5}, {5, 6}}, "1", o); });
  EXPECT_NE(few.find("1 parameters"), std::string::npos) << few;
  EXPECT_NE(few.find("2 groups"), std::string::npos) << few;
  const WeightRequest twice = linear_layer(2, 3);
  EXPECT_THROW(make_plan(std::vector{twice, twice}, 0, {}), Error);
  EXPECT_THROW(make_plan({}, 0, {}), Error);
}

// Published: 36.5M parameters; the classifier has a bias.
TEST(PlanTest, WideResNet) {
  const Plan full = wide_plan("100%");
  EXPECT_EQ(full.layers.size(), 29u);
  EXPECT_EQ(full.shareable, 36'461'232);
  EXPECT_EQ(full.original, 36'479'194);
  EXPECT_EQ(full.budget, 36'461'232);
  EXPECT_LT(static_cast<double>(full.unused), 0.02 * static_cast<double>(full.budget));
  // With 100 classes and a budget of all parameters the published code's rule leaves 19.3% unused.
  PlanOptions published;
  published.allocation = Allocation::ref_block;
  const auto unused = [](const Plan& p) {
    return static_cast<double>(p.unused) / static_cast<double>(p.budget);
  };
  EXPECT_NEAR(unused(wide_plan("36536884", published, 100)), 0.193, 0.0005);
  EXPECT_NEAR(unused(wide_plan("4M", published, 100)), 0.078, 0.0005);
  EXPECT_NEAR(unused(wide_plan("36536884", {}, 100)), 0.016, 0.0005);
  EXPECT_NEAR(unused(wide_plan("4M", {}, 100)), 0.008, 0.0005);
  EXPECT_EQ(wide_plan("dense").total, 36'479'194);
  EXPECT_EQ(wide_plan("largest").budget, 3'686'400);
  PlanOptions pro_rata;  // a budget that the published code refuses
  pro_rata.mapping = {MappingKind::random, 29};
  EXPECT_EQ(wide_plan("4M", pro_rata).budget, 4'000'000);
}

TEST(PlanTest, JsonHasTheNamesThatToolsReadAndTheTextTheCounts) {
  const Plan p = plan_of({{4, 5}, {9, 11}}, "60");
  const nlohmann::json j = to_json(p);
  EXPECT_EQ(j["parameters"]["original"], 130);
  EXPECT_EQ(j["parameters"]["shareable"], 119);
  EXPECT_EQ(j["parameters"]["budget"], 60);
  EXPECT_EQ(j["parameters"]["total"], p.total);
  EXPECT_EQ(j["unused"], 0);
  EXPECT_EQ(j["unassigned"], 0);
  EXPECT_EQ(j["groups"][0]["id"], 0);
  EXPECT_EQ(j["groups"][0]["parameters"], 60);
  EXPECT_EQ(j["groups"][0]["layers"], (std::vector{p.layers[0].name, p.layers[1].name}));
  EXPECT_EQ(j["layers"][0]["name"], p.layers[0].name);
  EXPECT_EQ(j["layers"][0]["kind"], "linear");
  EXPECT_EQ(j["layers"][0]["shape"], (std::vector{4, 5}));
  EXPECT_EQ(j["layers"][0]["group"], 0);
  EXPECT_EQ(j["layers"][0]["method"], "templates");
  EXPECT_EQ(j["layers"][0]["templates"], 3);
  EXPECT_EQ(j["layers"][0]["offsets"], (std::vector{0, 20, 40}));
  EXPECT_EQ(j["layers"][0]["theta"], "group0");
  EXPECT_EQ(j["layers"][0]["gain"], layer_gain(p, 0));
  EXPECT_EQ(j["layers"][0]["coefficients"], p.layers[0].name + ".phi");
  EXPECT_EQ(j["layers"][0]["projection"]["bias"], "group0.projection3.bias");
  EXPECT_FALSE(j["layers"][0].contains("masks"));
  EXPECT_EQ(j["layers"][1]["method"], "upsample");
  EXPECT_EQ(j["layers"][1]["masks"], "group0.mask");
  for (const char* other : {"grid", "coefficients", "projection"})
    EXPECT_FALSE(j["layers"][1].contains(other)) << other;
  EXPECT_EQ(j["options"],
            nlohmann::json::parse(
                R"({"budget": "60", "count": "groups", "mapping": "single", "combine": "emb", "templates": 8,
                    "embedding": 24, "softmax": false, "allocation": "cursor", "upsample": "mask", "window": 9,
                    "masks": "group", "mask_init": "small", "inter": "aspect", "gain": "auto", "seed": 0})"));
  const std::string table = text(wide_plan("25%"));
  for (const char* part : {"36,479,194", "36,461,232", "9,115,308", "block"})
    EXPECT_NE(table.find(part), std::string::npos) << table;
}

TEST(PlanTest, TheTableNamesEveryMethod) {
  PlanOptions o;
  EXPECT_NE(text(plan_of({{4, 5}, {9, 11}, {6, 10}}, "60", o)).find(" 3 templates "), std::string::npos);
  EXPECT_NE(text(plan_of({{4, 5}, {9, 11}, {6, 10}}, "60", o)).find(" 2 tiles "), std::string::npos);
  EXPECT_NE(text(plan_of({{4, 5}, {9, 11}, {6, 10}}, "60", o)).find(" exact "), std::string::npos);
  o.upsample = Upsample::inter;
  const Plan inter = plan_of({{4, 5}, {9, 11}}, "60", o);
  EXPECT_NE(text(inter).find(" 7x8 resized "), std::string::npos) << text(inter);
  EXPECT_EQ(to_json(inter)["layers"][1]["grid"], (std::vector{7, 8}));
  EXPECT_EQ(to_json(inter)["layers"][1]["resized_to"], (std::vector{9, 11}));
  o.allocation = Allocation::resized;
  o.count = Count::total;
  const std::string table = text(plan_of({{4, 5}, {9, 11}}, "700", o));
  EXPECT_NE(table.find(" 8 templates of 6x9 "), std::string::npos) << table;
  EXPECT_NE(table.find("trainable in all: the budget"), std::string::npos) << table;
}

TEST(PlanTest, APlanHoldsItsMapping) {
  PlanOptions o;
  o.mapping = {MappingKind::random, 3};
  const std::vector<WeightRequest> layers{linear_layer(2, 3), linear_layer(4, 5), linear_layer(6, 7),
                                          linear_layer(8, 9), linear_layer(2, 9)};
  const Plan p = make_plan(layers, 0, o);
  PlanOptions again;
  again.mapping = {.kind = MappingKind::file, .labels = labels_of(to_json(p))};
  const Plan q = make_plan(layers, 0, again);
  for (std::size_t l = 0; l < layers.size(); ++l) EXPECT_EQ(p.layers[l].group, q.layers[l].group);
  EXPECT_THROW(labels_of(nlohmann::json::parse(R"({"layers": [{"name": "a"}]})")), Error);
}

TEST(PlanTest, Cost) {
  const Plan p = plan_of({{4, 5}, {3, 7}, {9, 11}, {6, 10}}, "60");
  const Cost c = cost(p, 2);
  EXPECT_EQ(c.wire, 4 * p.total);
  EXPECT_EQ(c.optimizer, 8 * p.total);
  EXPECT_EQ(c.weights_lean, 4 * (99 + 99));
  EXPECT_EQ(c.weights_eager, 4 * (20 + 21 + 99 + 20 + 21 + 99 + 60));
  const Cost dense = cost(plan_of({{4, 5}, {3, 7}}, "dense"));
  EXPECT_EQ(dense.weights_lean, 4 * 21);
  EXPECT_EQ(dense.weights_eager, 4 * 21);
  EXPECT_EQ(to_json(c)["wire_bytes_per_step"], c.wire);
  EXPECT_NE(text(c).find("bytes"), std::string::npos);
}

TEST(InitialValueTest, DeviationIsOfTheLargestFanIn) {
  const auto deviation = [](const Plan& p, std::int64_t first, std::int64_t last) {
    const Parameters::Init init = initial_group(p, 0);
    double sum = 0;
    for (std::int64_t i = first; i < last; ++i) sum += init(i) * init(i);
    return std::sqrt(sum / static_cast<double>(last - first));
  };
  const Plan p = plan_of({{16, 100}, {40, 25}, {25, 40}, {25, 40}}, "4000");
  for (const std::int64_t first : {0, 1000, 2000, 3000})
    EXPECT_NEAR(deviation(p, first, first + 1000), std::sqrt(2.0 / 100), 0.015);
  // Alone, it starts as it would without sharing, however it is generated.
  for (const char* budget : {"dense", "4999", "20000"})
    EXPECT_NEAR(deviation(plan_of({{100, 50}}, budget), 0, 4999), std::sqrt(2.0 / 50), 0.01) << budget;
}

TEST(InitialValueTest, AlphasAreOrthonormalAndMasksAsPublished) {
  PlanOptions o;
  o.combine = Combine::wavg;
  const Plan p = plan_of({{4, 5}, {2, 10}, {10, 2}, {5, 5}, {30, 31}}, "100", o);
  std::vector<std::vector<double>> alpha;
  for (int l = 0; l < 3; ++l) {
    ASSERT_EQ(p.layers[l].offsets.size(), 5u);
    const Parameters::Init init = initial_coefficients(p, l);
    alpha.emplace_back();
    for (std::int64_t k = 0; k < 5; ++k) alpha.back().push_back(init(k));
  }
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b)
      EXPECT_NEAR(std::inner_product(alpha[a].begin(), alpha[a].end(), alpha[b].begin(), 0.0), a == b, 1e-14);
  ASSERT_EQ(p.groups[0].tiles, 10);
  EXPECT_EQ(initial_mask(p, "group0.mask", 10)(3), 1.0 / (9 * 9));
  EXPECT_THROW(orthonormal_rows({1, 2, 0, 0}, 2, 2), Error);
}

TEST(InitialValueTest, EmbeddingsAreOrthonormalAndProjectionsUniform) {
  const Plan p = plan_of({{4, 5}, {2, 10}, {25, 1}, {5, 4}}, "100");  // 5, 5, 4, 5 templates
  std::vector<std::vector<double>> phi;
  for (const int l : {0, 1, 3}) {
    const Parameters::Init init = initial_coefficients(p, l);
    phi.emplace_back();
    for (std::int64_t e = 0; e < 24; ++e) phi.back().push_back(init(e));
  }
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b)
      EXPECT_NEAR(std::inner_product(phi[a].begin(), phi[a].end(), phi[b].begin(), 0.0), a == b, 1e-14);
  constexpr double bound = 0.6;
  for (const Parameters::Init& init : {initial_projection(p, 0, 5), initial_projection_bias(p, 0, 5)}) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < 1000; ++i) {
      ASSERT_LE(std::abs(init(i)), bound);
      sum += init(i), squares += init(i) * init(i);
    }
    EXPECT_NEAR(sum / 1000, 0, 0.1 * bound);
    EXPECT_NEAR(std::sqrt(squares / 1000), bound / std::sqrt(3.0), 0.05 * bound);
  }
  EXPECT_NE(initial_projection(p, 0, 5)(0), initial_projection(p, 0, 4)(0));
  EXPECT_NE(initial_projection(p, 0, 5)(0), initial_projection_bias(p, 0, 5)(0));
}

TEST(InitialValueTest, MasksByOption) {
  PlanOptions o;
  o.mask_init = MaskInit::ones;
  EXPECT_EQ(initial_mask(plan_of({{9, 9}}, "10", o), "m", 9)(7), 1);
  o.mask_init = MaskInit::random;
  const Parameters::Init signs = initial_mask(plan_of({{9, 9}}, "10", o), "m", 9);
  int up = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(std::abs(signs(i)), 1);
    up += signs(i) > 0;
  }
  EXPECT_NEAR(up, 500, 60);
}

TEST(InitialValueTest, GainIsTheDeviationUnsharedOverThatOfTheStart) {
  const auto gain = [](PlanOptions o, const std::string& budget, const std::initializer_list<Shape>& shapes) {
    return layer_gain(plan_of(shapes, budget, o), 0);
  };
  const auto alone = {Shape{30, 40}};
  PlanOptions o;
  o.combine = Combine::avg;
  EXPECT_EQ(gain(o, "4800", {{30, 40}, {30, 40}}), 1);
  o.gain = Gain::on;
  EXPECT_DOUBLE_EQ(gain(o, "4800", {{30, 40}, {30, 40}}),
                   std::sqrt(4.0));  // the mean of four has half the deviation
  EXPECT_EQ(gain(o, "dense", alone), 1);
  o.gain = Gain::off;
  EXPECT_EQ(gain(o, "4800", alone), 1);
  // Beside a layer with four times the fan-in, tiles have half the deviation.
  const auto wide = {Shape{30, 40}, Shape{50, 160}};
  o = {.mask_init = MaskInit::ones, .gain = Gain::on};
  EXPECT_DOUBLE_EQ(gain(o, "500", wide), 2);
  o.gain = Gain::automatic;  // never enlarges
  EXPECT_EQ(gain(o, "500", wide), 1);
  o = {.upsample = Upsample::repeat, .gain = Gain::on};
  EXPECT_DOUBLE_EQ(gain(o, "500", wide), 2);
  o = {
      .gain =
          Gain::on};  // masks of 1/135 for the group's 16 tiles: the layer has 500 plain elements, 700 masked
  const double masked = (500 + 700.0 / (135 * 135)) / 1200;
  EXPECT_NEAR(gain(o, "500", wide), 2 / std::sqrt(masked), 1e-12);
  // Norms make the scale of no importance, unless it is asked for.
  std::vector<WeightRequest> normed{linear_layer(30, 40), linear_layer(5, 3)};
  normed[0].norm_follows = true;
  o.budget = Budget::parse("500");
  o.gain = Gain::automatic;
  EXPECT_EQ(layer_gain(make_plan(normed, 0, o), 0), 1);
  o.gain = Gain::on;
  EXPECT_NE(layer_gain(make_plan(normed, 0, o), 0), 1);
}

TEST(InitialValueTest, MoreLayersThanTemplatesHaveOrthonormalColumns) {
  const Random draws(5, "matrix");
  std::vector<double> a(29 * 4);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = draws.normal(i);
  const std::vector<double> q = orthonormal_rows(a, 29, 4);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      double product = 0, triangle = 0;
      for (int r = 0; r < 29; ++r) {
        product += q[r * 4 + i] * q[r * 4 + j];
        triangle += q[r * 4 + i] * a[r * 4 + j];
      }
      EXPECT_NEAR(product, i == j, 1e-14);
      if (i > j) {
        EXPECT_NEAR(triangle, 0, 1e-12);
      } else if (i == j) {
        EXPECT_GT(triangle, 0);
      }
    }
}

}  // namespace
}  // namespace ssn
