// What a plan costs: FLOPs of generation beside the network's, and what is said of it.
#include "ssn/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "layers/models/outline.h"

namespace ssn::test {
namespace {

Plan plan_of(std::initializer_list<Shape> shapes, const std::string& budget, PlanOptions options = {}) {
  std::vector<WeightRequest> requests;
  for (const Shape& s : shapes)
    requests.push_back({fmt::format("layer{}", requests.size()), WeightKind::linear, s, s[1]});
  options.budget = Budget::parse(budget);
  return make_plan(requests, 11, options);
}

Plan wide_plan(const std::string& budget, PlanOptions options = {}) {
  const Outline o = outline("wrn-28-10", {3, 32, 32, 100});
  options.budget = Budget::parse(budget);
  return make_plan(o.weights, o.ordinary, options);
}

TEST(Report, CountsTheFlopsOfEveryGenerator) {
  // In a group of 50: 4x5 gets 2 templates, 3x7 2 (3 would not matter: K = 2), 9x11 is larger than the group.
  const auto of = [](PlanOptions options) {
    options.templates = 2;
    return work(plan_of({{4, 5}, {3, 7}, {9, 11}}, "50", options), 1000, 4);
  };
  const double sums = 2 * 2 * 20 + 2 * 2 * 21, copied = 99 - 50;
  const Work wavg = of({.combine = Combine::wavg});
  EXPECT_EQ(wavg.generate, sums + copied);
  EXPECT_EQ(wavg.generate_backward, 2 * sums + 4 * copied);
  const Work emb = of({.combine = Combine::emb, .embedding = 5});
  EXPECT_EQ(emb.generate, wavg.generate + 2 * 2 * 2 * 5);
  EXPECT_EQ(emb.generate_backward, wavg.generate_backward + 2 * 2 * 2 * 2 * 5);
  const Work avg = of({.combine = Combine::avg, .upsample = Upsample::repeat});
  EXPECT_EQ(avg.generate, sums);
  EXPECT_EQ(avg.generate_backward, sums + copied);
  const Work rr = of({.combine = Combine::rr, .upsample = Upsample::inter});
  EXPECT_EQ(rr.generate, 8 * 99);
  EXPECT_EQ(rr.generate_backward, 8 * 99);
  const Work dense = work(plan_of({{4, 5}, {3, 7}, {9, 11}}, "dense"), 1000, 4);
  EXPECT_EQ(dense.generate, 0);
  EXPECT_EQ(dense.percent_of_step(false), 0);

  EXPECT_DOUBLE_EQ(wavg.percent_of_forward(1), 100 * wavg.generate / 1000);
  EXPECT_DOUBLE_EQ(wavg.percent_of_forward(4), 100 * wavg.generate / 4000);
  EXPECT_DOUBLE_EQ(wavg.percent_of_step(true), 100 * (2 * wavg.generate + wavg.generate_backward) / 12000);
  const nlohmann::json j = to_json(wavg);
  EXPECT_EQ(j["batch"], 4);
  EXPECT_EQ(j["generate"], wavg.generate);
  EXPECT_EQ(j["percent_of_step_eager"], wavg.percent_of_step(false));
}

// Paper, section 3.2: generation takes 0.5 to 2% of the forward pass of one image, 0.008 to 0.03% of 64.
// Both for WRN-28-10, whose masks and few templates are the cheap end.
TEST(Report, FindsGenerationAsCheapAsThePaperSays) {
  const double network = forward_flops("wrn-28-10", {3, 32, 32, 100});
  const Work masks = work(wide_plan("500K"), network, 64);
  EXPECT_GT(masks.percent_of_forward(1), 0.2);
  EXPECT_LT(masks.percent_of_forward(1), 2);
  const Work two = work(wide_plan("100%", {.combine = Combine::wavg, .templates = 2}), network, 64);
  EXPECT_GT(two.percent_of_forward(1), 0.5);
  EXPECT_LT(two.percent_of_forward(1), 2);
  EXPECT_GT(two.percent_of_forward(64), 0.008);
  EXPECT_LT(two.percent_of_forward(64), 0.03);
}

TEST(Report, CountsCopiesAsGeneratedWeights) {
  // Without a gain each weight is its template where that lies; with one, all but the widest layer's are
  // copies.
  PlanOptions options{.combine = Combine::rr};
  const auto held = [&] { return cost(plan_of({{4, 5}, {3, 7}, {2, 9}}, "63", options)); };
  EXPECT_EQ(held().weights_eager, 4 * (20 + 21 + 18));
  options.gain = Gain::on;
  EXPECT_EQ(held().weights_eager, 4 * (20 + 21 + 18) + 4 * (20 + 21));
  EXPECT_EQ(held().weights_lean, 4 * 21 + 4 * 21);
}

std::string advice_of(const Plan& plan, double network = 1e10, std::int64_t batch = 64) {
  return advice(plan, cost(plan), work(plan, network, batch));
}
int lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Report, SaysWhatMattersAndNoMore) {
  EXPECT_EQ(advice_of(wide_plan("dense")), "");
  const std::string whole = advice_of(wide_plan("100%"));
  EXPECT_EQ(whole.find("The sum over"), std::string::npos) << whole;
  EXPECT_NE(whole.find("MB less than eager"), std::string::npos) << whole;
  const std::string small = advice_of(wide_plan("4M"));
  EXPECT_NE(small.find("16.1 MB a step, 11% of the 146 MB"), std::string::npos) << small;
  EXPECT_EQ(small.find("--upsample"), std::string::npos) << small;
  const std::string tiny = advice_of(wide_plan("500K"));
  EXPECT_NE(tiny.find("--upsample mask"), std::string::npos) << tiny;
  const std::string block = advice_of(wide_plan("100%", {.allocation = Allocation::ref_block}));
  EXPECT_NE(block.find("19% of the groups is used by no layer"), std::string::npos) << block;
  EXPECT_NE(block.find("--allocation cursor"), std::string::npos) << block;
  const std::string single =
      advice_of(plan_of({{4, 5}, {3, 7}}, "60", {.mapping = {.kind = MappingKind::random, .groups = 2}}));
  EXPECT_NE(single.find("41 is enough"), std::string::npos) << single;
  const std::string total =
      advice_of(plan_of({{4, 5}, {3, 7}}, "60",
                        {.count = Count::total, .mapping = {.kind = MappingKind::random, .groups = 2}}));
  EXPECT_NE(total.find("52 is enough"), std::string::npos) << total;  // 11 are ordinary
  const std::string one_image = advice_of(wide_plan("100%"), 1e10, 1);
  EXPECT_NE(one_image.find("larger --batch"), std::string::npos) << one_image;
  EXPECT_LE(lines(one_image), 4);
}

}  // namespace
}  // namespace ssn::test
