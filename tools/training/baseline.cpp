#include "tools/training/baseline.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/progress.h"

namespace ssn {
namespace {

std::int64_t wanted(const PlanOptions& options, const Outline& full) {
  return options.budget.resolve(options.count == Count::total ? full.original() : full.shareable());
}

void check_flags(const TrainConfig& c, const PlanOptions& options) {
  const bool swrn = c.baseline == "swrn";
  const auto contradicts = [&](std::string_view flag, std::string_view value, std::string_view why) {
    fail_usage("baseline", "--baseline {} contradicts --{} {}: {}; leave one of them out", c.baseline, flag,
               value, why);
  };
  if (options.budget.kind() == Budget::Kind::dense)
    contradicts("budget", c.budget, "that is the network without a budget, a baseline of its own");
  if (options.budget.kind() == Budget::Kind::largest && !swrn)
    contradicts("budget", c.budget, "it has no groups of layers, so give a number or a share");
  if (c.mapping != "single" && !(swrn && c.mapping == "shape"))
    contradicts("mapping", c.mapping,
                swrn ? "it shares among layers of one type and shape" : "it shares nothing");
  if (c.groups > 0)
    contradicts("groups", fmt::format("{}", c.groups),
                swrn ? "there is a group for each type and shape" : "it shares nothing");
  if (swrn && c.combine != "emb" && c.combine != "wavg")
    contradicts("combine", c.combine, "its templates are summed with trained coefficients (wavg)");
  if (swrn && c.allocation == name_of(Allocation::resized))
    contradicts("allocation", c.allocation, "its templates have the shape of their layers");
}

/// The least budget of groups with which no layer is larger than its group: a lone layer's group has the
/// layer's size, the others get parts of the rest in proportion to their layers.
std::int64_t least_of_banks(const Outline& full, const PlanOptions& options) {
  const std::vector<int> group = assign_groups(options.mapping, full.weights, options.seed);
  std::vector<std::int64_t> sizes;
  for (const WeightRequest& w : full.weights) sizes.push_back(w.shape.size());
  const int count = 1 + *std::max_element(group.begin(), group.end());
  const std::vector<std::int64_t> least = largest_layers(sizes, group, count);
  const auto fits = [&](std::int64_t budget) {
    const std::vector<std::int64_t> banks = split_budget(sizes, group, count, budget);
    for (std::size_t g = 0; g < banks.size(); ++g)
      if (banks[g] < least[g]) return false;
    return true;
  };
  std::int64_t low = std::accumulate(least.begin(), least.end(), std::int64_t{0});
  if (fits(low)) return low;
  std::int64_t high = full.shareable();  // every layer fits into the part of its group
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

void check_banks(const TrainConfig& c, const PlanOptions& options, const Outline& full) {
  if (options.budget.kind() == Budget::Kind::largest) return;  // which all layers fit into
  PlanOptions least = options;
  least.budget = Budget::parse(fmt::format("{}", least_of_banks(full, options)));
  least.count = Count::groups;
  const Plan plan = make_plan(full.weights, full.ordinary, least);
  const bool total = options.count == Count::total;
  const std::int64_t need = total ? plan.total : plan.budget;
  check_usage(wanted(options, full) >= need, "baseline",
              "--baseline swrn: soft sharing needs a bank at least as large as its layers; for {} that is a "
              "budget of {} or more (--count {}), found {}",
              c.model, grouped(need), c.count, c.budget);
}

}  // namespace

nlohmann::json to_json(const Reduction& r) {
  return {{"width", r.size.width},
          {"blocks_removed", r.size.removed},
          {"original", r.original},
          {"shareable", r.shareable}};
}

std::string text(const Reduction& r) {
  const std::string shorter =
      r.size.removed > 0 ? fmt::format(" and {} block(s) fewer in each stage", r.size.removed) : "";
  const std::string narrower =
      r.size.width > 0 ? fmt::format("{} times the channels", r.size.width) : "one channel everywhere";
  return fmt::format("reduced: {}{}; in full it has {} parameters ({} shareable)", narrower, shorter,
                     grouped(r.original), grouped(r.shareable));
}

Setting setting(const TrainConfig& c, const NetworkTask& task) {
  PlanOptions options = plan_options(c);
  if (c.baseline == "none") return {std::move(options), {}};
  check_flags(c, options);
  const Outline full = outline(c.model, task);
  if (c.baseline == "swrn") {
    options.mapping.kind = MappingKind::shape;
    options.combine = Combine::wavg;
    check_banks(c, options, full);
    return {std::move(options), {}};
  }
  const bool total = options.count == Count::total;
  const NetworkSize size =
      reduced_size(c.model, task, total ? &Outline::original : &Outline::shareable, wanted(options, full));
  options.budget = Budget::parse("dense");
  options.count = Count::groups;
  return {std::move(options), Reduction{size, full.original(), full.shareable()}};
}

}  // namespace ssn
