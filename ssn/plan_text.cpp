#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/progress.h"
#include "ssn/initialise.h"
#include "ssn/plan.h"

// A plan and its options in words: names, JSON, tables.
namespace ssn {
namespace {

nlohmann::json layer_json(const Plan& plan, int number) {
  const PlannedLayer& l = plan.layers[number];
  const RecipeNames names = recipe_names(plan, number);
  nlohmann::json layer = {{"name", l.name},
                          {"kind", name_of(l.kind)},
                          {"shape", std::vector<std::int64_t>(l.shape.begin(), l.shape.end())},
                          {"group", l.group},
                          {"method", name_of(l.method)},
                          {"templates", l.offsets.size()},
                          {"offsets", l.offsets},
                          {"tiles", l.tiles},
                          {"gain", layer_gain(plan, number)},
                          {"theta", group_name(l.group)}};
  if (l.resized()) {
    const Grid to = resized_to(plan, l);
    layer["grid"] = {l.rows, l.cols};
    layer["resized_to"] = {to.rows, to.cols};
  }
  if (!names.masks.empty()) layer["masks"] = names.masks;
  if (!names.coefficients.empty()) layer["coefficients"] = names.coefficients;
  if (!names.projection.empty())
    layer["projection"] = {{"weight", names.projection}, {"bias", names.projection + kBiasOf}};
  return layer;
}

}  // namespace

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
    j["groups"].push_back({{"id", g},
                           {"parameters", plan.groups[g].parameters},
                           {"unused", unused(plan, plan.groups[g])},
                           {"layers", std::move(names)}});
  }
  j["layers"] = nlohmann::json::array();
  for (std::size_t i = 0; i < plan.layers.size(); ++i)
    j["layers"].push_back(layer_json(plan, static_cast<int>(i)));
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

using Json = nlohmann::json;

std::int64_t integer(const Json& of, const char* name) {
  return of.at(name).get<std::int64_t>();
}

std::string counts_text(const Json& plan) {
  const auto percent = [](std::int64_t n, std::int64_t of) {
    return 100.0 * static_cast<double>(n) / static_cast<double>(of);
  };
  const Json& parameters = plan.at("parameters");
  const std::int64_t original = integer(parameters, "original"), shareable = integer(parameters, "shareable"),
                     budget = integer(parameters, "budget"), all = integer(parameters, "total"),
                     unused = integer(plan, "unused"), unassigned = integer(plan, "unassigned");
  const bool total = plan.at("options").at("count") == name_of(Count::total);
  std::string s =
      fmt::format("{:>14} trainable in the network without sharing\n{:>14} of these can be shared\n",
                  grouped(original), grouped(shareable));
  s += fmt::format("{:>14} in the groups{}, {:.1f}% of the shareable\n", grouped(budget),
                   total ? "" : ": the budget", percent(budget, shareable));
  s += fmt::format("{:>14} coefficients and masks\n", grouped(all - budget - (original - shareable)));
  s += fmt::format("{:>14} trainable in all{}, {:.1f}% of the original\n", grouped(all),
                   total ? ": the budget" : "", percent(all, original));
  s += fmt::format("{:>14} of the groups are used by no layer ({:.1f}%)\n", grouped(unused),
                   percent(unused, budget));
  if (unassigned > 0)
    s += fmt::format("{:>14} of the budget are unassigned: {}\n", grouped(unassigned),
                     budget == shareable ? "every layer has what it needs"
                                         : "larger groups would need more coefficients than that");
  return s;
}

std::string groups_text(const Json& plan) {
  std::string s = fmt::format("{:>5}  {:>12}  {:>6}  {:>12}\n", "group", "parameters", "layers", "unused");
  for (const Json& group : plan.at("groups"))
    s += fmt::format("{:>5}  {:>12}  {:>6}  {:>12}\n", integer(group, "id"),
                     grouped(integer(group, "parameters")), group.at("layers").size(),
                     group.contains("unused") ? grouped(integer(group, "unused")) : "");
  return s;
}

/// "exact", "8 templates", "12 tiles", "5x14 resized", "8 templates of 5x14".
std::string method_text(const Json& layer) {
  const std::string method = layer.at("method");
  std::string grid;
  if (layer.contains("grid"))
    grid = fmt::format("{}x{}", layer["grid"].at(0).get<std::int64_t>(),
                       layer["grid"].at(1).get<std::int64_t>());
  if (method == name_of(Method::templates))
    return fmt::format("{} templates{}", layer.at("offsets").size(), grid.empty() ? "" : " of " + grid);
  if (!grid.empty()) return grid + " resized";
  return method == name_of(Method::exact) ? method : fmt::format("{} tiles", integer(layer, "tiles"));
}

std::string layers_text(const Json& plan) {
  std::size_t width = 5;
  const auto name = [](const Json& layer) { return layer.at("name").get<std::string>(); };
  for (const Json& layer : plan.at("layers")) width = std::max(width, name(layer).size());
  std::string s = fmt::format("{:<{}}  {:<11}  {:>13}  {:>5}  {:<19}  {}\n", "layer", width, "kind", "shape",
                              "group", "method", "offsets");
  for (const Json& layer : plan.at("layers"))
    s += fmt::format("{:<{}}  {:<11}  {:>13}  {:>5}  {:<19}  {}\n", name(layer), width,
                     layer.at("kind").get<std::string>(),
                     fmt::format("{}", fmt::join(layer.at("shape").get<std::vector<std::int64_t>>(), "x")),
                     integer(layer, "group"), method_text(layer),
                     fmt::join(layer.at("offsets").get<std::vector<std::int64_t>>(), " "));
  return s;
}

}  // namespace

std::string text(const Plan& plan) {
  return plan_text(to_json(plan));
}

std::string plan_text(const Json& plan) {
  try {
    return counts_text(plan) + "\n" + groups_text(plan) + "\n" + layers_text(plan);
  } catch (const Json::exception& e) {
    fail("plan", "this is no plan as to_json() writes it: {}", e.what());
  }
}

}  // namespace ssn
