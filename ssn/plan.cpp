#include "ssn/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "runtime/progress.h"

namespace ssn {
namespace {

void check_options(const PlanOptions& o) {
  check_usage(o.templates >= 1, "plan", "the number of templates is {}; at least 1 is needed", o.templates);
  check_usage(o.embedding >= 1, "plan", "the embedding has {} elements; at least 1 is needed", o.embedding);
  check_usage(o.window >= 1, "plan", "the masks' window is {}; at least 1 is needed", o.window);
  check_usage(!o.softmax || o.combine == Combine::emb || o.combine == Combine::wavg, "plan",
              "combine '{}' has no coefficients to take a softmax of", name_of(o.combine));
  const bool number = o.budget.kind() == Budget::Kind::share || o.budget.kind() == Budget::Kind::absolute;
  check_usage(
      number || o.count == Count::groups, "plan",
      "budget '{}' is of the groups: leave out count 'total', or give the budget as a number or a share",
      o.budget.text());
}

void check_requests(std::span<const WeightRequest> requests) {
  check(!requests.empty(), "plan", "the network asks for no weight");
  std::set<std::string_view> names;
  for (const WeightRequest& r : requests) {
    check(names.insert(r.name).second, "plan", "the layer name '{}' is used twice", r.name);
    check(r.shape.rank() > 0 && r.shape.size() > 0 && r.fan_in > 0, "plan",
          "layer '{}' has shape {} and fan-in {}; none may be 0", r.name, r.shape.text(), r.fan_in);
  }
}

/// The groups' sizes for a budget, once it is known which layers are in them.
class Sizes {
 public:
  Sizes(std::span<const WeightRequest> requests, const PlanOptions& options) {
    if (options.budget.kind() == Budget::Kind::dense) {
      check_usage(options.mapping.kind == MappingKind::single && options.mapping.groups <= 1, "plan",
                  "budget 'dense' shares nothing: leave out the mapping and the number of groups");
      label_.resize(requests.size());
      std::iota(label_.begin(), label_.end(), 0);
    } else {
      label_ = assign_groups(options.mapping, requests, options.seed);
    }
    for (const WeightRequest& r : requests) layers_.push_back(r.shape.size());
    groups_ = 1 + *std::max_element(label_.begin(), label_.end());
  }
  const std::vector<int>& labels() const { return label_; }
  int groups() const { return groups_; }
  std::vector<std::int64_t> largest() const { return largest_layers(layers_, label_, groups_); }
  std::vector<std::int64_t> of(std::int64_t budget) const {
    return split_budget(layers_, label_, groups_, budget);
  }

 private:
  std::vector<int> label_;
  std::vector<std::int64_t> layers_;
  int groups_;
};

/// Groups and layers, but for what depends on the groups' sizes.
Plan frame(std::span<const WeightRequest> requests, std::int64_t ordinary, const PlanOptions& options,
           const Sizes& sizes) {
  Plan plan;
  plan.options = options;
  plan.groups.resize(static_cast<std::size_t>(sizes.groups()));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const WeightRequest& r = requests[i];
    const int group = sizes.labels()[i];
    plan.groups[group].layers.push_back(static_cast<int>(i));
    plan.layers.push_back({.name = r.name,
                           .kind = r.kind,
                           .shape = r.shape,
                           .fan_in = r.fan_in,
                           .group = group,
                           .method = Method::exact,
                           .offsets = {},
                           .norm_follows = r.norm_follows,
                           .deviation = r.deviation});
    plan.shareable += r.shape.size();
  }
  plan.original = plan.shareable + ordinary;
  return plan;
}

/// The starts of the templates of a group's layers; none for a layer that must be upsampled.
Offsets offsets_of(const PlanOptions& o, std::int64_t parameters, std::span<const Shape> shapes) {
  std::vector<std::int64_t> sizes;
  for (const Shape& s : shapes) sizes.push_back(s.size());
  if (shapes.size() == 1 && sizes[0] == parameters) return {{0}};
  const bool resized = o.allocation == Allocation::resized;
  if (resized) std::fill(sizes.begin(), sizes.end(), even_template(parameters, o.templates));
  if (o.combine == Combine::rr) return allocate_one(sizes, parameters, o.templates);
  if (o.allocation == Allocation::ref_block) return allocate_ref_block(shapes, parameters, o.templates);
  if (!resized) return allocate_cursor(sizes, parameters, o.templates);
  const Offsets first = allocate_cursor(std::span(sizes).first(1), parameters, o.templates);
  return Offsets(shapes.size(), first[0]);  // the same for all
}

/// How a layer that is larger than its group is made.
void upsample(PlannedLayer& layer, const PlanOptions& o, std::int64_t parameters) {
  layer.method = Method::upsample;
  if (o.upsample != Upsample::inter) {
    layer.tiles = (layer.size() + parameters - 1) / parameters;
    return;
  }
  const Grid grid = o.inter == Inter::line     ? Grid{1, parameters}
                    : o.inter == Inter::aspect ? aspect_grid(parameters, layer.shape)
                                               : ref_grid(parameters, layer.shape);
  layer.offsets = {0};
  layer.rows = grid.rows, layer.cols = grid.cols;
}

/// Gives the group its size, and its layers their place in it.
void allocate(Plan& plan, PlannedGroup& group, std::int64_t parameters) {
  const PlanOptions& o = plan.options;
  group.parameters = parameters;
  std::vector<Shape> shapes;
  for (const int l : group.layers) shapes.push_back(plan.layers[l].shape);
  const bool unshared = shapes.size() == 1 && shapes[0].size() == parameters;
  Offsets offsets = offsets_of(o, parameters, shapes);
  for (std::size_t i = 0; i < group.layers.size(); ++i) {
    PlannedLayer& layer = plan.layers[group.layers[i]];
    layer.offsets = std::move(offsets[i]);
    if (layer.offsets.empty()) upsample(layer, o, parameters);
    if (layer.offsets.size() > 1) layer.method = Method::templates;
    if (o.allocation == Allocation::resized && !unshared) {
      const Grid grid = aspect_grid(even_template(parameters, o.templates), layer.shape);
      layer.rows = grid.rows, layer.cols = grid.cols;
    }
    group.tiles = std::max(group.tiles, layer.tiles);
  }
}

/// Coefficients and masks of a group.
std::int64_t beside(const Plan& plan, const PlannedGroup& group) {
  const PlanOptions& o = plan.options;
  std::int64_t coefficients = 0, own_masks = 0;
  std::set<std::int64_t> counts;
  for (const int l : group.layers) {
    const PlannedLayer& layer = plan.layers[l];
    own_masks += layer.tiles - 1;
    if (layer.method != Method::templates) continue;
    const auto templates = static_cast<std::int64_t>(layer.offsets.size());
    if (o.combine == Combine::wavg) coefficients += templates;
    if (o.combine != Combine::emb) continue;
    coefficients += o.embedding;
    if (counts.insert(templates).second) coefficients += templates * (o.embedding + 1);
  }
  if (o.upsample != Upsample::mask) return coefficients;
  return coefficients + o.window * (o.masks == MaskScope::layer ? own_masks : group.tiles - 1);
}

/// The frame, filled in for these sizes of the groups.
Plan filled(Plan plan, const std::vector<std::int64_t>& parameters) {
  plan.total = plan.original - plan.shareable;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    allocate(plan, plan.groups[g], parameters[g]);
    plan.budget += parameters[g];
    plan.unused += unused(plan, plan.groups[g]);
    plan.total += parameters[g] + beside(plan, plan.groups[g]);
  }
  return plan;
}

/// About the least that can be trained in all, whatever the groups' sizes: sizes a sixteenth apart, then
/// finer ones around the best.
Plan least_total(const Plan& frame, const Sizes& sizes) {
  constexpr std::int64_t kFiner = 16;
  std::optional<Plan> least;
  std::int64_t best = 0;
  const auto look = [&](std::int64_t size) {
    Plan plan = filled(frame, sizes.of(size));
    if (!least || plan.total < least->total) least = std::move(plan), best = size;
  };
  const std::int64_t first = sizes.groups(), last = std::max<std::int64_t>(frame.shareable, first);
  for (std::int64_t b = last; b >= first; b -= std::max<std::int64_t>(1, b / kFiner)) look(b);
  for (std::int64_t around = best / kFiner; around > 0; around /= kFiner) {
    const std::int64_t step = (around + kFiner - 1) / kFiner, middle = best;
    for (std::int64_t b = middle - around; b <= middle + around; b += step)
      if (b >= first && b <= last) look(b);
  }
  return *std::move(least);
}

/// The plan with at most `wanted` trainable parameters whose groups are about the largest. What they need
/// beside themselves grows with them (coefficients) or shrinks (masks), in steps: the search comes from
/// above, goes down by what is too much (but by a sixteenth at least, and a half at most) until it fits,
/// bisects the last step, and tries some sizes beyond, where masks may take less.
Plan fit_total(const Plan& frame, const Sizes& sizes, std::int64_t wanted) {
  constexpr std::int64_t kBeyond = 64;
  const std::int64_t ordinary = frame.original - frame.shareable, groups = sizes.groups();
  std::int64_t size = wanted - ordinary, too_much = size + 1;
  std::optional<Plan> best;
  while (size >= groups && !best) {
    Plan plan = filled(frame, sizes.of(size));
    if (plan.total <= wanted) {
      best = std::move(plan);
    } else {
      too_much = size;
      const std::int64_t room = wanted - (plan.total - plan.budget);
      const std::int64_t next = std::clamp(room, size / 2, size - std::max<std::int64_t>(1, size / 16));
      size = size > groups ? std::max(next, groups) : 0;
    }
  }
  if (!best) {
    best = least_total(frame, sizes);
    check_usage(
        best->total <= wanted, "plan",
        "{} trainable parameters in all are too few: norms and biases take {}, coefficients and masks "
        "about {} at least; {} are enough",
        grouped(wanted), grouped(ordinary), grouped(best->total - best->budget - ordinary),
        grouped(best->total));
    size = best->budget;
    too_much = std::max(size + 1, wanted - ordinary);
  }
  const auto fits = [&](std::int64_t larger) {
    Plan plan = filled(frame, sizes.of(larger));
    if (plan.total > wanted) return false;
    size = larger, best = std::move(plan);
    return true;
  };
  while (too_much - size > 1) {
    const std::int64_t middle = size + (too_much - size) / 2;
    if (!fits(middle)) too_much = middle;
  }
  std::int64_t tries = kBeyond;
  for (std::int64_t next = size + 1; tries > 0 && next <= wanted - ordinary; ++next)
    tries = fits(next) ? kBeyond : tries - 1;
  best->unassigned = wanted - best->total;
  return *std::move(best);
}
}  // namespace

Grid resized_to(const Plan& plan, const PlannedLayer& layer) {
  if (layer.method == Method::upsample && plan.options.inter == Inter::line) return {1, layer.size()};
  return {layer.shape[0], layer.size() / layer.shape[0]};
}

std::string group_name(int group) {
  return fmt::format("group{}", group);
}

RecipeNames recipe_names(const Plan& plan, int number) {
  const PlannedLayer& layer = plan.layers[number];
  const PlanOptions& o = plan.options;
  const std::string group = group_name(layer.group);
  RecipeNames names;
  if (layer.tiles > 1 && o.upsample == Upsample::mask)
    names.masks = (o.masks == MaskScope::group ? group : layer.name) + ".mask";
  if (layer.method != Method::templates) return names;
  if (o.combine == Combine::wavg) names.coefficients = layer.name + ".alpha";
  if (o.combine != Combine::emb) return names;
  names.coefficients = layer.name + ".phi";
  names.projection = fmt::format("{}.projection{}", group, layer.offsets.size());
  return names;
}

std::int64_t unused(const Plan& plan, const PlannedGroup& group) {
  std::vector<std::pair<std::int64_t, std::int64_t>> used;
  for (const int l : group.layers) {
    const PlannedLayer& layer = plan.layers[l];
    if (layer.tiles > 1) return 0;
    for (const std::int64_t first : layer.offsets) used.emplace_back(first, first + layer.template_size());
  }
  std::sort(used.begin(), used.end());
  std::int64_t gaps = 0, end = 0;
  for (const auto& [first, last] : used) {
    gaps += std::max<std::int64_t>(0, first - end);
    end = std::max(end, last);
  }
  return gaps + group.parameters - end;
}

Plan make_plan(std::span<const WeightRequest> requests, std::int64_t ordinary, const PlanOptions& options) {
  check_options(options);
  check_requests(requests);
  const Sizes sizes(requests, options);
  const Plan empty = frame(requests, ordinary, options, sizes);
  const Budget& budget = options.budget;
  if (budget.kind() == Budget::Kind::dense || budget.kind() == Budget::Kind::largest)
    return filled(empty, sizes.largest());
  if (options.count == Count::total) return fit_total(empty, sizes, budget.resolve(empty.original));
  const std::int64_t wanted = budget.resolve(empty.shareable);
  Plan plan = filled(empty, sizes.of(wanted));
  plan.unassigned = wanted - plan.budget;
  return plan;
}

}  // namespace ssn
