#include "ssn/shared_weights.h"

#include "ssn/initialise.h"
#include "ssn/names.h"

namespace ssn {
namespace {
constexpr std::string_view kPolicies[] = {"lean", "eager"};
}  // namespace

std::string_view name_of(WeightPolicy policy) {
  return kPolicies[static_cast<int>(policy)];
}
WeightPolicy weight_policy(std::string_view name) {
  return enum_of<WeightPolicy>("weights", name, kPolicies);
}

struct SharedWeights::Group {
  std::vector<WeightRecipe> recipes;  // of its layers, in their order
  int pending = 0;                    // declared uses whose gradient has not arrived
  bool reported = false;
  // Eager only.
  std::uint64_t version = 0;  // of the values that `weights` were generated from
  std::vector<Tensor> weights;
  std::vector<WeightRecipe> arrived;  // whose gradients wait, in the order of the tape
  std::vector<Tensor> gradients;
};

/// A declared use. It lives in the closure of its weight: with a graph that is dropped, as by an exception in
/// the forward pass, go the declarations of its uses.
class SharedWeights::Use {
 public:
  explicit Use(std::shared_ptr<Group> group) : group_(std::move(group)) { ++group_->pending; }
  ~Use() { end(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  void end() {
    if (group_) --group_->pending;
    group_.reset();
  }

 private:
  std::shared_ptr<Group> group_;
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
    const PlannedGroup& planned = plan_.groups[g];
    const std::string name = fmt::format("group{}", g);
    const Var theta =
        parameters_.add(name, Shape{planned.parameters}, Section::group, true, initial_group(plan_, g));
    Var masks;
    if (planned.tiles > 1)
      masks = parameters_.add(name + ".mask", Shape{planned.tiles - 1, options_.window}, Section::mask, true,
                              initial_mask(plan_, g));
    auto group = std::make_shared<Group>();
    for (const int l : planned.layers) {
      places_[l] = {g, static_cast<int>(group->recipes.size())};
      group->recipes.push_back(make_recipe(l, theta, masks));
    }
    groups_.push_back(std::move(group));
  }
}

WeightRecipe SharedWeights::make_recipe(int number, const Var& theta, const Var& masks) {
  const PlannedLayer& layer = plan_.layers[number];
  WeightRecipe recipe{.rule = {.shape = layer.shape, .offsets = layer.offsets, .window = options_.window},
                      .theta = theta};
  if (layer.method == Method::upsample) {
    recipe.rule.method = WeightRule::Method::tiles;
    recipe.coefficients = masks;
  } else if (layer.method == Method::templates) {
    recipe.rule.method = WeightRule::Method::templates;
    recipe.coefficients =
        parameters_.add(layer.name + ".alpha", Shape{static_cast<std::int64_t>(layer.offsets.size())},
                        Section::coefficient, false, initial_alpha(plan_, number));
  }
  return recipe;
}

const Plan& SharedWeights::plan() const {
  check(!groups_.empty(), "shared_weights", "there is no plan before build()");
  return plan_;
}

Var SharedWeights::use(int number) {
  check(!groups_.empty(), "shared_weights", "a weight is used before build()");
  if (!checked_) {
    check(parameters_.version() > 0, "shared_weights", "a weight is used before Parameters::build()");
    check(parameters_.total() == plan_.total, "shared_weights",
          "there are {} parameters, the plan has {}: add all ordinary ones before build()",
          parameters_.total(), plan_.total);
    checked_ = true;
  }
  const Place place = places_[number];
  const std::shared_ptr<Group>& group = groups_[place.group];
  const WeightRecipe& recipe = group->recipes[place.index];
  std::vector<Var> inputs{recipe.theta};
  if (recipe.coefficients) inputs.push_back(recipe.coefficients);
  Var::Backward backward;
  if (grad_enabled())
    backward = [this, place, use = std::make_shared<Use>(group)](const Tensor& gy, auto) {
      use->end();
      arrived(place, gy);
    };
  if (policy_ == WeightPolicy::eager)
    return Var::result(kept_weight(place), std::move(inputs), std::move(backward));
  return Var::regenerated(
      recipe.rule.shape, parameters_.dtype(), parameters_.device(),
      [&recipe] {
        return generate({&recipe, 1}).front();
      },
      std::move(inputs), std::move(backward));
}

Tensor SharedWeights::kept_weight(Place place) {
  Group& group = *groups_[place.group];
  if (group.version != parameters_.version()) {
    group.weights.clear();  // first, so that their memory is used again
    group.weights = generate(group.recipes);
    group.version = parameters_.version();
  }
  return group.weights[place.index];
}

void SharedWeights::arrived(Place place, const Tensor& gradient) {
  Group& group = *groups_[place.group];
  check(!group.reported, "shared_weights",
        "group {} gets a gradient after it was reported as complete: call finish_backward() after each "
        "backward(), and set_reporting(false) before all but the last of a step",
        place.group);
  const WeightRecipe& recipe = group.recipes[place.index];
  if (policy_ == WeightPolicy::eager) {
    group.arrived.push_back(recipe);
    group.gradients.push_back(gradient);
  } else {
    generate_backward({&recipe, 1}, {&gradient, 1});
  }
  if (group.pending == 0) complete(place.group);
}

void SharedWeights::complete(int number) {
  Group& group = *groups_[number];
  if (!group.arrived.empty()) generate_backward(group.arrived, group.gradients);
  group.arrived.clear();
  group.gradients.clear();
  if (!reporting_ || group.reported) return;
  group.reported = true;
  if (callback_) callback_(number);
}

void SharedWeights::on_group_complete(std::function<void(int)> callback) {
  callback_ = std::move(callback);
}

void SharedWeights::finish_backward() {
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) complete(g);
  for (const auto& group : groups_) group->reported = false;
}

void SharedWeights::abandon_backward() {
  for (const auto& group : groups_) {
    group->arrived.clear();
    group->gradients.clear();
    group->reported = false;
  }
}

}  // namespace ssn
