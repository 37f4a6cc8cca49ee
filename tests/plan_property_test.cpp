// What holds for every plan, over thousands of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tests/random_plans.h"

namespace ssn {
namespace {

using test::Dice;
constexpr int kPlans = 6000;

/// Up to 20 layers of a few shapes and kinds, so that some are frequent.
std::vector<WeightRequest> random_layers(Dice& dice) {
  std::vector<WeightRequest> requests;
  std::vector<Shape> shapes;
  for (std::int64_t i = 1 + dice.below(5); i > 0; --i)
    shapes.push_back(dice.below(2)
                         ? Shape{1 + dice.below(20), 1 + dice.below(20)}
                         : Shape{1 + dice.below(9), 1 + dice.below(9), 1 + dice.below(3), 1 + dice.below(3)});
  for (std::int64_t i = 1 + dice.below(20); i > 0; --i) {
    const Shape s = shapes[dice.below(static_cast<std::int64_t>(shapes.size()))];
    const WeightKind kind = s.rank() == 4
                                ? WeightKind::convolution
                                : dice.one_of({WeightKind::linear, WeightKind::linear, WeightKind::gru});
    requests.push_back({fmt::format("l{}", i), kind, s, s.size() / s[0], dice.below(2) == 1});
  }
  return requests;
}

/// A plan with the numbers that it was made for.
struct Trial {
  Plan plan;
  std::int64_t ordinary, wanted;
};

/// Any network, budget, mapping and method: `check` gets the plan. Of those that the budget is too small for,
/// it is checked that they say so.
void for_many_plans(const std::function<void(const Trial&)>& check) {
  Dice dice(3);
  int refused = 0;
  for (int trial = 0; trial < kPlans; ++trial) {
    const std::vector<WeightRequest> requests = random_layers(dice);
    const auto layers = static_cast<std::int64_t>(requests.size());
    PlanOptions o = test::random_options(dice, layers);
    std::int64_t all = 0;
    for (const WeightRequest& r : requests) all += r.shape.size();
    const std::int64_t wanted = layers + dice.below(std::int64_t{1} << dice.below(13)) * all / 1024;
    o.budget = Budget::parse(std::to_string(wanted));
    const std::int64_t ordinary = dice.below(100);
    std::optional<Plan> plan;
    try {
      plan = make_plan(requests, ordinary, o);
    } catch (const UsageError& e) {
      ++refused;
      const bool ref = std::string(e.what()).find("choose inter 'aspect'") != std::string::npos;
      const bool few = std::string(e.what()).find("too few") != std::string::npos;
      ASSERT_TRUE(ref || few) << e.what();
      ASSERT_TRUE(ref ? o.inter == Inter::ref : o.count == Count::total) << e.what();
      continue;
    }
    ASSERT_EQ(to_json(*plan), to_json(make_plan(requests, ordinary, o)));  // twice the same
    check({*plan, ordinary, wanted});
    if (testing::Test::HasFatalFailure()) FAIL() << text(*plan);
  }
  EXPECT_GT(refused, kPlans / 100);
  EXPECT_LT(refused, kPlans / 3);
}

/// The templates that a layer should have, and their size in theta.
std::pair<std::int64_t, std::int64_t> expected_templates(const Plan& p, const PlannedLayer& layer) {
  const PlannedGroup& group = p.groups[layer.group];
  const std::int64_t n = layer.size(), most = p.options.templates;
  if (group.layers.size() == 1 && group.parameters == n) return {1, n};
  if (p.options.allocation == Allocation::resized)
    return {std::min(most, group.parameters), std::max<std::int64_t>(1, group.parameters / most)};
  return {std::min(most, group.parameters / n), n};
}

/// Method, offsets and sizes of one layer; marks what it uses of its group.
void check_layer(const Plan& p, const PlannedLayer& layer, std::vector<bool>& used) {
  const std::int64_t parameters = p.groups[layer.group].parameters;
  const auto [templates, stride] = expected_templates(p, layer);
  const bool one = p.options.combine == Combine::rr;
  if (templates == 0) {
    ASSERT_EQ(layer.method, Method::upsample);
    if (p.options.upsample != Upsample::inter) {
      ASSERT_TRUE(layer.offsets.empty());
      ASSERT_GE(layer.tiles * parameters, layer.size());
      ASSERT_LT((layer.tiles - 1) * parameters, layer.size());
      used.assign(used.size(), true);
      return;
    }
    ASSERT_TRUE(layer.resized());
    ASSERT_EQ(layer.offsets, std::vector<std::int64_t>{0});
  } else {
    ASSERT_EQ(layer.method, templates == 1 || one ? Method::exact : Method::templates);
    ASSERT_EQ(static_cast<std::int64_t>(layer.offsets.size()), one ? 1 : templates);
  }
  ASSERT_EQ(layer.tiles, 1);
  ASSERT_LE(layer.template_size(), templates == 0 ? parameters : stride);
  ASSERT_GT(layer.template_size(), 0);
  std::set<std::int64_t> distinct;
  for (const std::int64_t first : layer.offsets) {
    ASSERT_GE(first, 0);
    ASSERT_LE(first + layer.template_size(), parameters);
    ASSERT_EQ(first % stride, 0);
    ASSERT_TRUE(distinct.insert(first).second);
    std::fill_n(used.begin() + first, layer.template_size(), true);
  }
}

/// Coefficients and masks of a group, counted by name as they will be added.
std::int64_t learned_beside(const Plan& p, const PlannedGroup& group) {
  const PlanOptions& o = p.options;
  std::map<std::string, std::int64_t> sizes;
  for (const int l : group.layers) {
    const PlannedLayer& layer = p.layers[l];
    const auto k = static_cast<std::int64_t>(layer.offsets.size());
    if (layer.tiles > 1 && o.upsample == Upsample::mask) {
      std::int64_t& masks = sizes[o.masks == MaskScope::layer ? layer.name + ".mask" : "mask"];
      masks = std::max(masks, (layer.tiles - 1) * o.window);
    } else if (layer.method == Method::templates && o.combine == Combine::wavg) {
      sizes[layer.name + ".alpha"] = k;
    } else if (layer.method == Method::templates && o.combine == Combine::emb) {
      sizes[layer.name + ".phi"] = o.embedding;
      sizes[fmt::format("projection{}", k)] = k * (o.embedding + 1);
    }
  }
  std::int64_t sum = 0;
  for (const auto& [name, size] : sizes) sum += size;
  return sum;
}

TEST(PlanPropertyTest, SumsOffsetsAndUnused) {
  std::map<Method, int> methods;
  std::map<Combine, int> combined;
  int resized = 0, layers = 0;
  for_many_plans([&](const Trial& trial) {
    const Plan& p = trial.plan;
    ASSERT_EQ(p.original, p.shareable + trial.ordinary);
    std::int64_t seen = 0, unused_in_all = 0, beside = 0, budget = 0;
    for (const PlannedGroup& group : p.groups) {
      ASSERT_GE(group.parameters, 1);
      std::vector<bool> used(static_cast<std::size_t>(group.parameters));
      std::int64_t tiles = 1;
      for (const int l : group.layers) {
        const PlannedLayer& layer = p.layers[l];
        ASSERT_EQ(&p.groups[layer.group], &group);
        check_layer(p, layer, used);
        tiles = std::max(tiles, layer.tiles);
        ++seen, ++layers, ++methods[layer.method];
        resized += layer.resized();
        combined[p.options.combine] += layer.method == Method::templates;
      }
      ASSERT_EQ(group.tiles, tiles);
      const std::int64_t left = std::count(used.begin(), used.end(), false);
      ASSERT_EQ(unused(p, group), left);
      unused_in_all += left;
      beside += learned_beside(p, group);
      budget += group.parameters;
    }
    ASSERT_EQ(seen, static_cast<std::int64_t>(p.layers.size()));
    ASSERT_EQ(p.unused, unused_in_all);
    ASSERT_EQ(p.budget, budget);
    ASSERT_EQ(p.total, trial.ordinary + budget + beside);
    ASSERT_EQ(trial.wanted, p.unassigned + (p.options.count == Count::total ? p.total : p.budget));
    ASSERT_GE(p.unassigned, 0);
  });
  for (const Method m : {Method::exact, Method::templates, Method::upsample})
    EXPECT_GT(methods[m], layers / 10);
  for (const Combine c : {Combine::emb, Combine::wavg, Combine::avg}) EXPECT_GT(combined[c], layers / 50);
  EXPECT_GT(resized, layers / 10);
}

TEST(PlanPropertyTest, WhatTheCursorLeavesUnused) {
  // Until the cursor comes to the end for the first time, all that lies behind it is used but for its steps
  // to multiples of the next layer's size, each smaller than that layer; what it then leaves at the end is
  // smaller than two of the layer that made it turn. Later layers add to what is used, and never take away.
  int checked = 0;
  for_many_plans([&](const Trial& trial) {
    const Plan& p = trial.plan;
    if (p.options.allocation != Allocation::cursor || p.options.combine == Combine::rr) return;
    for (const PlannedGroup& group : p.groups) {
      std::int64_t steps = 0, reached = 0;
      bool round = false;
      for (const int l : group.layers) {
        const PlannedLayer& layer = p.layers[l];
        if (layer.method == Method::upsample || round) continue;
        const std::int64_t n = layer.size(), end = group.parameters / n * n;
        const std::int64_t first = (reached + n - 1) / n * n;
        const std::int64_t wanted = static_cast<std::int64_t>(layer.offsets.size()) * n;
        round = first + wanted >= end;
        if (first >= end) {  // turns before it takes anything
          ASSERT_LT(group.parameters - reached, 2 * n);
          steps += group.parameters - reached;
        } else {
          ASSERT_LT(first - reached, n);
          steps += first - reached + (round ? group.parameters - end : 0);
        }
        reached = std::min(first + wanted, group.parameters);
      }
      if (!round) {
        ASSERT_LE(unused(p, group), group.parameters - reached + steps);
        continue;
      }
      ++checked;
      ASSERT_LE(unused(p, group), steps);
    }
  });
  EXPECT_GT(checked, 500);
}

TEST(PlanPropertyTest, TheCursorUsesEqualLayersSlotsEvenly) {
  for_many_plans([](const Trial& trial) {
    const Plan& p = trial.plan;
    if (p.options.allocation != Allocation::cursor || p.options.combine == Combine::rr) return;
    for (const PlannedGroup& group : p.groups) {
      const std::int64_t n = p.layers[group.layers[0]].size();
      if (n > group.parameters) continue;
      std::multiset<std::int64_t> slots;
      bool equal = true;
      for (const int l : group.layers) {
        equal = equal && p.layers[l].size() == n;
        slots.insert(p.layers[l].offsets.begin(), p.layers[l].offsets.end());
      }
      if (!equal) continue;
      std::size_t least = slots.size(), most = 0;
      for (std::int64_t s = 0; s + n <= group.parameters; s += n) {
        least = std::min(least, slots.count(s));
        most = std::max(most, slots.count(s));
      }
      ASSERT_LE(most - least, 1u);
    }
  });
}

}  // namespace
}  // namespace ssn
