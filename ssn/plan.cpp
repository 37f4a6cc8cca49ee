#include "ssn/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "runtime/progress.h"
#include "ssn/names.h"

namespace ssn {
namespace {
constexpr std::string_view kCombine[] = {"emb", "wavg", "avg", "rr"};
constexpr std::string_view kUpsample[] = {"mask", "inter", "repeat"};
constexpr std::string_view kInter[] = {"aspect", "1d", "ref"};
constexpr std::string_view kMaskScope[] = {"group", "layer"};
constexpr std::string_view kMaskInit[] = {"small", "ones", "random"};
constexpr std::string_view kGain[] = {"auto", "on", "off"};
constexpr std::string_view kCount[] = {"groups", "total"};
constexpr std::string_view kMethods[] = {"exact", "templates", "upsample"};

/// Layers, their groups and the groups' sizes.
void fill_groups(Plan& plan, std::span<const WeightRequest> requests) {
  const PlanOptions& o = plan.options;
  const bool dense = o.budget.kind() == Budget::Kind::dense;
  std::vector<int> label(requests.size());
  if (dense) {
    check_usage(o.mapping.kind == MappingKind::single && o.mapping.groups <= 1, "plan",
                "budget 'dense' shares nothing: leave out the mapping and the number of groups");
    std::iota(label.begin(), label.end(), 0);
  } else {
    label = assign_groups(o.mapping, requests, o.seed);
  }
  const int count = 1 + *std::max_element(label.begin(), label.end());
  std::vector<std::int64_t> sizes;
  for (const WeightRequest& r : requests) sizes.push_back(r.shape.size());
  std::vector<std::int64_t> parameters;
  if (dense || o.budget.kind() == Budget::Kind::largest) {
    parameters = largest_layers(sizes, label, count);
  } else {
    const std::int64_t budget = o.budget.resolve(plan.shareable);
    parameters = split_budget(sizes, label, count, budget);
    plan.unassigned = budget - std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0});
  }
  for (const std::int64_t n : parameters) plan.groups.push_back({n, {}, 1});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const WeightRequest& r = requests[i];
    plan.groups[label[i]].layers.push_back(static_cast<int>(i));
    plan.layers.push_back({.name = r.name,
                           .kind = r.kind,
                           .shape = r.shape,
                           .fan_in = r.fan_in,
                           .group = label[i],
                           .method = Method::exact,
                           .offsets = {},
                           .norm_follows = r.norm_follows});
  }
}

/// Where in the group each of its layers lies.
void allocate(Plan& plan, PlannedGroup& group) {
  std::vector<Shape> shapes;
  std::vector<std::int64_t> sizes;
  for (const int l : group.layers) {
    shapes.push_back(plan.layers[l].shape);
    sizes.push_back(shapes.back().size());
  }
  const PlanOptions& o = plan.options;
  Offsets offsets = o.allocation == Allocation::cursor
                        ? allocate_cursor(sizes, group.parameters, o.templates)
                        : allocate_ref_block(shapes, group.parameters, o.templates);
  for (std::size_t i = 0; i < group.layers.size(); ++i) {
    PlannedLayer& layer = plan.layers[group.layers[i]];
    layer.offsets = std::move(offsets[i]);
    if (layer.offsets.size() > 1) layer.method = Method::templates;
    if (layer.offsets.empty()) {
      layer.method = Method::upsample;
      layer.tiles = (layer.size() + group.parameters - 1) / group.parameters;
      group.tiles = std::max(group.tiles, layer.tiles);
    }
  }
}

std::int64_t unused(const Plan& plan, const PlannedGroup& group) {
  std::vector<std::pair<std::int64_t, std::int64_t>> used;
  for (const int l : group.layers) {
    const PlannedLayer& layer = plan.layers[l];
    if (layer.method == Method::upsample) return 0;
    for (const std::int64_t first : layer.offsets) used.emplace_back(first, first + layer.size());
  }
  std::sort(used.begin(), used.end());
  std::int64_t gaps = 0, end = 0;
  for (const auto& [first, last] : used) {
    gaps += std::max<std::int64_t>(0, first - end);
    end = std::max(end, last);
  }
  return gaps + group.parameters - end;
}

void check_requests(std::span<const WeightRequest> requests, const PlanOptions& options) {
  check_usage(options.templates >= 1, "plan", "the number of templates is {}; at least 1 is needed",
              options.templates);
  check_usage(options.window >= 1, "plan", "the masks' window is {}; at least 1 is needed", options.window);
  check(!requests.empty(), "plan", "the network asks for no weight");
  std::set<std::string_view> names;
  for (const WeightRequest& r : requests) {
    check(names.insert(r.name).second, "plan", "the layer name '{}' is used twice", r.name);
    check(r.shape.size() > 0 && r.fan_in > 0, "plan", "layer '{}' has shape {} and fan-in {}; none may be 0",
          r.name, r.shape.text(), r.fan_in);
  }
}
}  // namespace

std::string_view name_of(Combine combine) {
  return kCombine[static_cast<int>(combine)];
}
std::string_view name_of(Upsample upsample) {
  return kUpsample[static_cast<int>(upsample)];
}
std::string_view name_of(Inter inter) {
  return kInter[static_cast<int>(inter)];
}
std::string_view name_of(MaskScope scope) {
  return kMaskScope[static_cast<int>(scope)];
}
std::string_view name_of(MaskInit init) {
  return kMaskInit[static_cast<int>(init)];
}
std::string_view name_of(Gain gain) {
  return kGain[static_cast<int>(gain)];
}
std::string_view name_of(Count count) {
  return kCount[static_cast<int>(count)];
}
std::string_view name_of(Method method) {
  return kMethods[static_cast<int>(method)];
}
Combine combine_method(std::string_view name) {
  return enum_of<Combine>("combine", name, kCombine);
}
Upsample upsample_method(std::string_view name) {
  return enum_of<Upsample>("upsample", name, kUpsample);
}
Inter inter_rule(std::string_view name) {
  return enum_of<Inter>("inter", name, kInter);
}
MaskScope mask_scope(std::string_view name) {
  return enum_of<MaskScope>("masks", name, kMaskScope);
}
MaskInit mask_init(std::string_view name) {
  return enum_of<MaskInit>("mask-init", name, kMaskInit);
}
Gain gain_rule(std::string_view name) {
  return enum_of<Gain>("gain", name, kGain);
}
Count count_of(std::string_view name) {
  return enum_of<Count>("count", name, kCount);
}

Plan make_plan(std::span<const WeightRequest> requests, std::int64_t ordinary, const PlanOptions& options) {
  check_requests(requests, options);
  Plan plan;
  plan.options = options;
  for (const WeightRequest& r : requests) plan.shareable += r.shape.size();
  plan.original = plan.shareable + ordinary;
  fill_groups(plan, requests);
  plan.total = ordinary;
  for (PlannedGroup& g : plan.groups) {
    allocate(plan, g);
    plan.budget += g.parameters;
    plan.unused += unused(plan, g);
    plan.total += g.parameters + (g.tiles - 1) * options.window;
  }
  for (const PlannedLayer& l : plan.layers)
    if (l.method == Method::templates) plan.total += static_cast<std::int64_t>(l.offsets.size());
  return plan;
}

nlohmann::json to_json(const Plan& plan) {
  const PlanOptions& o = plan.options;
  nlohmann::json j;
  j["parameters"] = {{"original", plan.original},
                     {"shareable", plan.shareable},
                     {"budget", plan.budget},
                     {"total", plan.total}};
  j["unused"] = plan.unused;
  j["unassigned"] = plan.unassigned;
  j["options"] = {{"budget", o.budget.text()},
                  {"mapping", name_of(o.mapping.kind)},
                  {"combine", name_of(o.combine)},
                  {"upsample", name_of(o.upsample)},
                  {"templates", o.templates},
                  {"window", o.window},
                  {"allocation", name_of(o.allocation)},
                  {"seed", o.seed}};
  j["groups"] = nlohmann::json::array();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    nlohmann::json names = nlohmann::json::array();
    for (const int l : plan.groups[g].layers) names.push_back(plan.layers[l].name);
    j["groups"].push_back(
        {{"id", g}, {"parameters", plan.groups[g].parameters}, {"layers", std::move(names)}});
  }
  j["layers"] = nlohmann::json::array();
  for (const PlannedLayer& l : plan.layers)
    j["layers"].push_back({{"name", l.name},
                           {"kind", name_of(l.kind)},
                           {"shape", std::vector<std::int64_t>(l.shape.begin(), l.shape.end())},
                           {"group", l.group},
                           {"method", name_of(l.method)},
                           {"templates", l.offsets.size()},
                           {"offsets", l.offsets},
                           {"tiles", l.tiles}});
  return j;
}

std::string text(const Plan& plan) {
  const auto percent = [&](std::int64_t n, std::int64_t of) {
    return 100.0 * static_cast<double>(n) / static_cast<double>(of);
  };
  std::string s =
      fmt::format("{:>14} trainable in the network without sharing\n{:>14} of these can be shared\n",
                  grouped(plan.original), grouped(plan.shareable));
  s += fmt::format("{:>14} in the groups: the budget, {:.1f}% of the shareable\n", grouped(plan.budget),
                   percent(plan.budget, plan.shareable));
  s += fmt::format("{:>14} trainable in all, {:.1f}% of the original\n", grouped(plan.total),
                   percent(plan.total, plan.original));
  s += fmt::format("{:>14} of the groups are used by no layer ({:.1f}%)\n", grouped(plan.unused),
                   percent(plan.unused, plan.budget));
  if (plan.unassigned > 0)
    s += fmt::format("{:>14} unassigned: every layer has what it needs\n", grouped(plan.unassigned));
  s += fmt::format("\n{:>5}  {:>12}  {:>6}  {:>12}\n", "group", "parameters", "layers", "unused");
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    s += fmt::format("{:>5}  {:>12}  {:>6}  {:>12}\n", g, grouped(plan.groups[g].parameters),
                     plan.groups[g].layers.size(), grouped(unused(plan, plan.groups[g])));
  std::size_t width = 5;
  for (const PlannedLayer& l : plan.layers) width = std::max(width, l.name.size());
  s += fmt::format("\n{:<{}}  {:<11}  {:>13}  {:>5}  {:<14}  {}\n", "layer", width, "kind", "shape", "group",
                   "method", "offsets");
  for (const PlannedLayer& l : plan.layers) {
    const std::string method = l.method == Method::exact       ? "exact"
                               : l.method == Method::templates ? fmt::format("{} templates", l.offsets.size())
                                                               : fmt::format("{} tiles", l.tiles);
    s += fmt::format("{:<{}}  {:<11}  {:>13}  {:>5}  {:<14}  {}\n", l.name, width, name_of(l.kind),
                     l.shape.text(), l.group, method, fmt::join(l.offsets, " "));
  }
  return s;
}

}  // namespace ssn
