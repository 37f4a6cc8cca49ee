#include "ssn/shared_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "autograd/fused_linear.h"
#include "autograd/recompute.h"
#include "ssn/initialise.h"

namespace ssn {
namespace {

/// The rule of a layer, without what is learned.
WeightRule rule_of(const Plan& plan, int number) {
  const PlannedLayer& layer = plan.layers[number];
  WeightRule rule{.shape = layer.shape,
                  .offsets = layer.offsets,
                  .window = plan.options.window,
                  .gain = layer_gain(plan, number)};
  if (layer.tiles > 1) rule.method = WeightRule::Method::tiles;
  if (layer.method == Method::templates) {
    rule.method = WeightRule::Method::templates;
    rule.softmax = plan.options.softmax;
  }
  if (layer.resized()) {
    const Grid to = resized_to(plan, layer);
    rule.resize = {layer.rows, layer.cols, to.rows, to.cols};
  }
  return rule;
}

/// What a weight is made of, of its group's `size` parameters.
std::vector<FlatRange> used_ranges(const WeightRule& rule, std::int64_t size) {
  if (rule.method == WeightRule::Method::tiles) return {{0, rule.tile ? rule.tile : size}};
  const std::int64_t n = rule.resize ? rule.resize->rows * rule.resize->cols : rule.shape.size();
  std::vector<FlatRange> ranges;
  for (const std::int64_t offset : rule.offsets) ranges.push_back({offset, n});
  return ranges;
}

WeightRecipe in_format(WeightRecipe recipe, const WeightFormat& format) {
  recipe.format = format;
  return recipe;
}

bool overlap(const FlatRange& a, const FlatRange& b) {
  return a.first < b.end() && b.first < a.end();
}
}  // namespace

struct SharedWeights::Group {
  struct Part {
    FlatRange range;        // of the group's parameters
    int pending = 0;        // declared uses whose gradient has not arrived
    bool reported = false;  // in this step
  };
  std::int64_t first = 0;              // in the flat buffers; after on_complete()
  std::vector<WeightRecipe> recipes;   // of its layers, in their order
  std::vector<Part> parts;             // in order, all of it
  std::vector<std::vector<int>> uses;  // the parts that each layer uses
  int pending = 0;                     // declared uses whose gradient has not arrived
  // Eager only.
  using Formats = std::vector<std::optional<WeightFormat>>;  // of each layer's last use
  Formats formats[2];               // without and with a gradient: evaluations have a precision of their own
  bool kept_with_gradient = false;  // which of them `weights` have
  std::uint64_t version = 0;        // of the values that `weights` were generated from
  std::vector<Tensor> weights;      // of the layers that were used
  std::vector<WeightRecipe> arrived;  // whose gradients wait, in the order of the tape
  std::vector<Tensor> gradients;

  void count(int layer, int uses_more) {
    pending += uses_more;
    for (const int part : uses[layer]) parts[part].pending += uses_more;
  }
  void divide(std::int64_t size, std::int64_t least);
  void generate_used(bool with_gradient);
};

/// Cuts the group where the layers that use it change, into parts of at least `least` elements.
void SharedWeights::Group::divide(std::int64_t size, std::int64_t least) {
  std::vector<std::vector<FlatRange>> used;
  std::set<std::int64_t> cuts;
  for (const WeightRecipe& recipe : recipes) {
    used.push_back(used_ranges(recipe.rule, size));
    for (const FlatRange& r : used.back()) cuts.insert({r.first, r.end()});
  }
  least = std::max<std::int64_t>(least, 1);
  parts = {{{0, 0}}};
  for (const std::int64_t cut : cuts) {
    FlatRange& last = parts.back().range;
    last.size = cut - last.first;
    if (last.size >= least && size - cut >= least) parts.push_back({{cut, 0}});
  }
  parts.back().range.size = size - parts.back().range.first;
  uses.assign(recipes.size(), {});
  for (std::size_t layer = 0; layer < recipes.size(); ++layer)
    for (std::size_t part = 0; part < parts.size(); ++part)
      if (std::ranges::any_of(used[layer], [&](const FlatRange& r) { return overlap(r, parts[part].range); }))
        uses[layer].push_back(static_cast<int>(part));
}

/// The weights of all layers whose formats are known, in one call.
void SharedWeights::Group::generate_used(bool with_gradient) {
  weights.assign(recipes.size(), {});  // first, so that their memory is used again
  kept_with_gradient = with_gradient;
  const Formats& used = formats[with_gradient];
  std::vector<std::size_t> layers;
  std::vector<WeightRecipe> wanted;
  for (std::size_t layer = 0; layer < recipes.size(); ++layer) {
    if (!used[layer]) continue;
    layers.push_back(layer);
    wanted.push_back(in_format(recipes[layer], *used[layer]));
  }
  if (wanted.empty()) return;
  const std::vector<Tensor> made = generate(wanted);
  for (std::size_t i = 0; i < layers.size(); ++i) weights[layers[i]] = made[i];
}

/// A declared use. It lives in the closure of its weight: with a graph that is dropped, as by an exception in
/// the forward pass, go the declarations of its uses.
class SharedWeights::Use {
 public:
  Use(std::shared_ptr<Group> group, int layer) : group_(std::move(group)), layer_(layer) {
    group_->count(layer_, 1);
  }
  ~Use() { end(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  void end() {
    if (group_) group_->count(layer_, -1);
    group_.reset();
  }

 private:
  std::shared_ptr<Group> group_;
  int layer_;  // of the group
};

SharedWeights::SharedWeights(Parameters& parameters, PlanOptions options, WeightPolicy policy)
    : parameters_(parameters), options_(std::move(options)), policy_(policy) {}
SharedWeights::~SharedWeights() = default;

int SharedWeights::request(WeightRequest request) {
  check(groups_.empty(), "shared_weights", "'{}' is requested after build()", request.name);
  requests_.push_back(std::move(request));
  return static_cast<int>(requests_.size()) - 1;
}

void SharedWeights::build() {
  check(groups_.empty(), "shared_weights", "build() is called twice");
  plan_ = make_plan(requests_, parameters_.count(Section::ordinary), options_);
  places_.resize(plan_.layers.size());
  for (int g = 0; g < static_cast<int>(plan_.groups.size()); ++g) {
    auto group = std::make_shared<Group>();
    group->recipes = make_recipes(g);
    for (Group::Formats& formats : group->formats) formats.resize(group->recipes.size());
    group->divide(plan_.groups[g].parameters, plan_.groups[g].parameters);
    const std::vector<int>& layers = plan_.groups[g].layers;
    for (std::size_t i = 0; i < layers.size(); ++i) places_[layers[i]] = {g, static_cast<int>(i)};
    groups_.push_back(std::move(group));
  }
}

Var SharedWeights::add_masks(const std::string& name, std::int64_t tiles) {
  return parameters_.add(name, Shape{tiles - 1, options_.window}, Section::mask, true,
                         initial_mask(plan_, name, tiles));
}

/// Adds the group's parameters: theta, masks, coefficients. Embeddings and alphas do not decay, as in the
/// published code.
std::vector<WeightRecipe> SharedWeights::make_recipes(int number) {
  const PlannedGroup& group = plan_.groups[number];
  const Var theta = parameters_.add(group_name(number), Shape{group.parameters}, Section::group, true,
                                    initial_group(plan_, number));
  std::map<std::string, Var> masks;                        // by their name
  std::map<std::string, std::pair<Var, Var>> projections;  // W and b
  std::vector<WeightRecipe> recipes;
  for (const int l : group.layers) {
    const PlannedLayer& layer = plan_.layers[l];
    const RecipeNames names = recipe_names(plan_, l);
    WeightRecipe recipe{.rule = rule_of(plan_, l), .theta = theta};
    if (!names.masks.empty()) {
      const bool shared = plan_.options.masks == MaskScope::group;
      if (!masks.contains(names.masks))
        masks[names.masks] = add_masks(names.masks, shared ? group.tiles : layer.tiles);
      recipe.coefficients = masks[names.masks];
    }
    if (!names.coefficients.empty()) {
      const auto templates = static_cast<std::int64_t>(layer.offsets.size());
      const Shape shape{names.projection.empty() ? templates : plan_.options.embedding};
      recipe.coefficients = parameters_.add(names.coefficients, shape, Section::coefficient, false,
                                            initial_coefficients(plan_, l));
    }
    if (!names.projection.empty()) {
      if (!projections.contains(names.projection)) projections[names.projection] = add_projection(l);
      std::tie(recipe.projection, recipe.projection_bias) = projections[names.projection];
    }
    recipes.push_back(std::move(recipe));
  }
  return recipes;
}

/// W and b of the layers of its group that have as many templates.
std::pair<Var, Var> SharedWeights::add_projection(int layer) {
  const std::string name = recipe_names(plan_, layer).projection;
  const int group = plan_.layers[layer].group;
  const auto templates = static_cast<std::int64_t>(plan_.layers[layer].offsets.size());
  const Var w = parameters_.add(name, Shape{templates, plan_.options.embedding}, Section::coefficient, true,
                                initial_projection(plan_, group, templates));
  const Var b = parameters_.add(name + kBiasOf, Shape{templates}, Section::coefficient, true,
                                initial_projection_bias(plan_, group, templates));
  return {w, b};
}

const Plan& SharedWeights::plan() const {
  check(!groups_.empty(), "shared_weights", "there is no plan before build()");
  return plan_;
}

SharedWeights::Place SharedWeights::place_of(int number) {
  check(!groups_.empty(), "shared_weights", "a weight is used before build()");
  if (!checked_) {
    check(parameters_.version() > 0, "shared_weights", "a weight is used before Parameters::build()");
    check(parameters_.total() == plan_.total, "shared_weights",
          "there are {} parameters, the plan has {}: add all ordinary ones before build()",
          parameters_.total(), plan_.total);
    checked_ = true;
  }
  return places_[number];
}

Var SharedWeights::use(int number, const WeightFormat& format) {
  const Place place = place_of(number);
  const std::shared_ptr<Group>& group = groups_[place.group];
  const WeightRecipe& recipe = group->recipes[place.index];
  std::vector<Var> inputs{recipe.theta};
  for (const Var& learned : {recipe.coefficients, recipe.projection, recipe.projection_bias})
    if (learned) inputs.push_back(learned);
  Var::Backward backward;
  if (const auto kept = kept_for_backward([&] { return std::make_shared<Use>(group, place.index); });
      grad_enabled())
    backward = [this, place, format, use = std::static_pointer_cast<Use>(kept)](const Tensor& gy, auto) {
      use->end();
      arrived(place, format, gy);
    };
  if (policy_ == WeightPolicy::eager)
    return Var::result(kept_weight(place, format), std::move(inputs), std::move(backward));
  return Var::regenerated(
      shape_in(format, recipe.rule.shape), format.half ? DType::bf16 : parameters_.dtype(),
      parameters_.device(),
      [&recipe, format] {
        const WeightRecipe formatted = in_format(recipe, format);
        return generate({&formatted, 1}).front();
      },
      std::move(inputs), std::move(backward));
}

Var SharedWeights::linear(int number, const Var& x, const Var& bias) {
  const Place place = place_of(number);
  const WeightRecipe& recipe = groups_[place.group]->recipes[place.index];
  const bool fused = policy_ == WeightPolicy::lean && !gradient_follows() &&
                     fuses_linear(recipe.rule, x.shape()[0], x.dtype(), x.device());
  return fused ? generated_linear(x, recipe, bias) : WeightFactory::linear(number, x, bias);
}

Tensor SharedWeights::kept_weight(Place place, const WeightFormat& format) {
  Group& group = *groups_[place.group];
  const bool with_gradient = gradient_follows();
  const bool others = group.kept_with_gradient != with_gradient && group.formats[0] != group.formats[1];
  if (group.version != parameters_.version() || others) {
    group.generate_used(with_gradient);
    group.version = parameters_.version();
  }
  Tensor& weight = group.weights[place.index];
  std::optional<WeightFormat>& wanted = group.formats[with_gradient][place.index];
  if (!weight || wanted != format) {
    weight = {};
    wanted = format;
    const WeightRecipe recipe = in_format(group.recipes[place.index], format);
    weight = generate({&recipe, 1}).front();
  }
  return weight;
}

void SharedWeights::arrived(Place place, const WeightFormat& format, const Tensor& gradient) {
  Group& group = *groups_[place.group];
  const std::vector<int>& uses = group.uses[place.index];
  check(std::ranges::none_of(uses, [&](int part) { return group.parts[part].reported; }), "shared_weights",
        "group {} gets a gradient after it was reported as complete: call finish_backward() after each "
        "backward(), and set_reporting(false) before all but the last of a step",
        place.group);
  const WeightRecipe& recipe = group.recipes[place.index];
  if (policy_ == WeightPolicy::eager) {
    group.arrived.push_back(in_format(recipe, format));
    group.gradients.push_back(gradient);
  } else {
    const WeightRecipe formatted = in_format(recipe, format);
    generate_backward({&formatted, 1}, {&gradient, 1});
  }
  const auto is_complete = [&](int part) { return group.parts[part].pending == 0; };
  if (group.pending == 0 || (reporting_ && std::ranges::any_of(uses, is_complete)))
    report(place.group, false);
}

/// Adds what waits to the group's gradient.
void SharedWeights::carry_on(Group& group) {
  if (!group.arrived.empty()) generate_backward(group.arrived, group.gradients);
  group.arrived.clear();
  group.gradients.clear();
}

/// Reports what is complete: all of the group, or the parts whose last use has ended.
void SharedWeights::report(int number, bool all) {
  Group& group = *groups_[number];
  carry_on(group);
  if (!reporting_) return;
  for (Group::Part& part : group.parts) {
    if (part.reported || (part.pending > 0 && !all)) continue;
    part.reported = true;
    if (callback_) callback_({number, {group.first + part.range.first, part.range.size}});
  }
}

void SharedWeights::on_complete(std::function<void(const Completion&)> callback, std::int64_t least) {
  callback_ = std::move(callback);
  if (!callback_) return;
  check(parameters_.version() > 0, "shared_weights", "on_complete() is called before Parameters::build()");
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    Group& group = *groups_[g];
    check(group.pending == 0, "shared_weights", "on_complete() is called while weights are in use");
    group.first = parameters_.entry(fmt::format("group{}", g)).range.first;
    group.divide(plan_.groups[g].parameters, least);
  }
}

void SharedWeights::forget_reports() {
  for (const auto& group : groups_)
    for (Group::Part& part : group->parts) part.reported = false;
}

void SharedWeights::finish_backward() {
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) report(g, true);
  forget_reports();
}

void SharedWeights::abandon_backward() {
  for (const auto& group : groups_) {
    group->arrived.clear();
    group->gradients.clear();
  }
  forget_reports();
}

}  // namespace ssn
