// Plans: mappings, templates, counts, start values.
#include "ssn/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "layers/models/zoo.h"
#include "runtime/random.h"
#include "ssn/initialise.h"
#include "ssn/report.h"

namespace ssn {
namespace {

/// Takes requests down.
class Notebook : public WeightFactory {
 public:
  int request(WeightRequest request) override {
    requests.push_back(std::move(request));
    return static_cast<int>(requests.size()) - 1;
  }
  Var use(int) override { return {}; }
  std::vector<WeightRequest> requests;
};

std::string usage_error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

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

TEST(PlanTest, WrongOptions) {
  PlanOptions o;
  o.templates = 0;
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}}, "9", o); }).find("templates"), std::string::npos);
  o = {};
  o.window = 0;
  EXPECT_NE(usage_error_of([&] { plan_of({{4, 5}}, "9", o); }).find("window"), std::string::npos);
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
  EXPECT_EQ(j["layers"][1]["method"], "upsample");
  const std::string table = text(wide_plan("25%"));
  for (const char* part : {"36,479,194", "36,461,232", "9,115,308", "block"})
    EXPECT_NE(table.find(part), std::string::npos) << table;
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

TEST(InitialValueTest, DeviationIsOfTheMostFrequentShape) {
  // Group of 4000: 600 elements are covered by the rare layer alone, whose fan-in is 100.
  PlanOptions o;
  o.templates = 1;
  std::vector<WeightRequest> layers{linear_layer(16, 100), linear_layer(40, 25), linear_layer(25, 40),
                                    linear_layer(25, 40)};
  o.budget = Budget::parse("4000");
  const Plan p = make_plan(layers, 0, o);
  ASSERT_EQ(p.layers[0].offsets[0], 0);
  ASSERT_EQ(p.layers[1].offsets[0], 2000);
  ASSERT_EQ(p.layers[2].offsets[0], 3000);
  ASSERT_EQ(p.layers[3].offsets[0], 0);
  const Parameters::Init init = initial_group(p, 0);
  const auto deviation = [&](std::int64_t first, std::int64_t last) {
    double sum = 0;
    for (std::int64_t i = first; i < last; ++i) sum += init(i) * init(i);
    return std::sqrt(sum / static_cast<double>(last - first));
  };
  EXPECT_NEAR(deviation(0, 1000), std::sqrt(2.0 / 40), 0.02);
  EXPECT_NEAR(deviation(1000, 1600), std::sqrt(2.0 / 100), 0.015);
  EXPECT_NEAR(deviation(1600, 2000), std::sqrt(2.0 / 9), 0.05);
  EXPECT_NEAR(deviation(2000, 3000), std::sqrt(2.0 / 25), 0.025);
  EXPECT_NEAR(deviation(3000, 4000), std::sqrt(2.0 / 40), 0.02);
}

TEST(InitialValueTest, ALayerAloneStartsAsItselfAndAnUpsampledOneAsAFilter) {
  const auto deviation = [](const Plan& p) {
    const Parameters::Init init = initial_group(p, 0);
    double sum = 0;
    for (std::int64_t i = 0; i < p.budget; ++i) sum += init(i) * init(i);
    return std::sqrt(sum / static_cast<double>(p.budget));
  };
  EXPECT_NEAR(deviation(plan_of({{100, 50}}, "dense")), std::sqrt(2.0 / 50), 0.01);
  EXPECT_NEAR(deviation(plan_of({{100, 50}}, "4999")), std::sqrt(2.0 / 9), 0.02);
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
