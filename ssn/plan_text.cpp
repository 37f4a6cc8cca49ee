#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/progress.h"
#include "ssn/plan.h"

// A plan and its options in words: names, JSON, tables.
namespace ssn {
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
                  {"count", name_of(o.count)},
                  {"mapping", name_of(o.mapping.kind)},
                  {"combine", name_of(o.combine)},
                  {"templates", o.templates},
                  {"embedding", o.embedding},
                  {"softmax", o.softmax},
                  {"allocation", name_of(o.allocation)},
                  {"upsample", name_of(o.upsample)},
                  {"window", o.window},
                  {"masks", name_of(o.masks)},
                  {"mask_init", name_of(o.mask_init)},
                  {"inter", name_of(o.inter)},
                  {"gain", name_of(o.gain)},
                  {"seed", o.seed}};
  j["groups"] = nlohmann::json::array();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    nlohmann::json names = nlohmann::json::array();
    for (const int l : plan.groups[g].layers) names.push_back(plan.layers[l].name);
    j["groups"].push_back(
        {{"id", g}, {"parameters", plan.groups[g].parameters}, {"layers", std::move(names)}});
  }
  j["layers"] = nlohmann::json::array();
  for (const PlannedLayer& l : plan.layers) {
    nlohmann::json layer = {{"name", l.name},
                            {"kind", name_of(l.kind)},
                            {"shape", std::vector<std::int64_t>(l.shape.begin(), l.shape.end())},
                            {"group", l.group},
                            {"method", name_of(l.method)},
                            {"templates", l.offsets.size()},
                            {"offsets", l.offsets},
                            {"tiles", l.tiles}};
    if (l.resized()) layer["grid"] = {l.rows, l.cols};
    j["layers"].push_back(std::move(layer));
  }
  return j;
}

Labels labels_of(const nlohmann::json& plan) {
  Labels labels;
  try {
    for (const nlohmann::json& layer : plan.at("layers"))
      labels[layer.at("name").get<std::string>()] = layer.at("group").get<int>();
  } catch (const nlohmann::json::exception& e) {
    fail("plan", "this is no plan as to_json() writes it: {}", e.what());
  }
  return labels;
}

namespace {
/// "exact", "8 templates", "12 tiles", "5x14 resized", "8 templates of 5x14".
std::string method_text(const PlannedLayer& l) {
  const std::string grid = fmt::format("{}x{}", l.rows, l.cols);
  if (l.method == Method::templates)
    return fmt::format("{} templates{}", l.offsets.size(), l.resized() ? " of " + grid : "");
  if (l.resized()) return grid + " resized";
  return l.method == Method::exact ? "exact" : fmt::format("{} tiles", l.tiles);
}
}  // namespace

std::string text(const Plan& plan) {
  const auto percent = [&](std::int64_t n, std::int64_t of) {
    return 100.0 * static_cast<double>(n) / static_cast<double>(of);
  };
  const bool total = plan.options.count == Count::total;
  std::string s =
      fmt::format("{:>14} trainable in the network without sharing\n{:>14} of these can be shared\n",
                  grouped(plan.original), grouped(plan.shareable));
  s += fmt::format("{:>14} in the groups{}, {:.1f}% of the shareable\n", grouped(plan.budget),
                   total ? "" : ": the budget", percent(plan.budget, plan.shareable));
  s += fmt::format("{:>14} coefficients and masks\n",
                   grouped(plan.total - plan.budget - (plan.original - plan.shareable)));
  s += fmt::format("{:>14} trainable in all{}, {:.1f}% of the original\n", grouped(plan.total),
                   total ? ": the budget" : "", percent(plan.total, plan.original));
  s += fmt::format("{:>14} of the groups are used by no layer ({:.1f}%)\n", grouped(plan.unused),
                   percent(plan.unused, plan.budget));
  if (plan.unassigned > 0)
    s += fmt::format("{:>14} of the budget are unassigned: {}\n", grouped(plan.unassigned),
                     plan.budget == plan.shareable ? "every layer has what it needs"
                                                   : "larger groups would need more coefficients than that");
  s += fmt::format("\n{:>5}  {:>12}  {:>6}  {:>12}\n", "group", "parameters", "layers", "unused");
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    s += fmt::format("{:>5}  {:>12}  {:>6}  {:>12}\n", g, grouped(plan.groups[g].parameters),
                     plan.groups[g].layers.size(), grouped(unused(plan, plan.groups[g])));
  std::size_t width = 5;
  for (const PlannedLayer& l : plan.layers) width = std::max(width, l.name.size());
  s += fmt::format("\n{:<{}}  {:<11}  {:>13}  {:>5}  {:<19}  {}\n", "layer", width, "kind", "shape", "group",
                   "method", "offsets");
  for (const PlannedLayer& l : plan.layers) {
    s += fmt::format("{:<{}}  {:<11}  {:>13}  {:>5}  {:<19}  {}\n", l.name, width, name_of(l.kind),
                     l.shape.text(), l.group, method_text(l), fmt::join(l.offsets, " "));
  }
  return s;
}

}  // namespace ssn
