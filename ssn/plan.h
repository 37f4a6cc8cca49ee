#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "layers/weight.h"
#include "ssn/allocation.h"
#include "ssn/budget.h"
#include "ssn/mapping.h"

namespace ssn {

/// How templates become a weight (paper section 3.2.1).
enum class Combine : std::uint8_t { wavg };
/// How a group becomes the weight of a layer that is larger (paper section 3.2.2).
enum class Upsample : std::uint8_t { mask };
std::string_view name_of(Combine combine);
std::string_view name_of(Upsample upsample);
/// Unknown names are a UsageError that suggests the nearest.
Combine combine_method(std::string_view name);
Upsample upsample_method(std::string_view name);

struct PlanOptions {
  Budget budget;
  Mapping mapping;
  Combine combine = Combine::wavg;
  Upsample upsample = Upsample::mask;
  int templates = 8;        // K, the most a layer gets
  std::int64_t window = 9;  // elements of a mask
  Allocation allocation = Allocation::cursor;
  std::uint64_t seed = 0;  // of the mapping and the initial values
};

enum class Method : std::uint8_t { exact, templates, upsample };
std::string_view name_of(Method method);

struct PlannedLayer {
  std::string name;
  WeightKind kind;
  Shape shape;
  std::int64_t fan_in;
  int group;
  Method method;
  std::vector<std::int64_t> offsets;  // of the templates in the group, K_i; exact: one; upsample: none
  std::int64_t tiles = 1;             // upsample: copies of the group, the last perhaps cut

  std::int64_t size() const { return shape.size(); }
};
struct PlannedGroup {
  std::int64_t parameters = 0;
  std::vector<int> layers;  // in the order of construction
  std::int64_t tiles = 1;   // the most that a layer needs; the group has tiles − 1 masks
};

/// Which parameters make which weight: a pure function of the requests and the options, the same on every
/// rank.
struct Plan {
  PlanOptions options;
  std::vector<PlannedGroup> groups;
  std::vector<PlannedLayer> layers;
  std::int64_t original = 0;    // trainable parameters of the network without sharing
  std::int64_t shareable = 0;   // Σ n_i over the layers
  std::int64_t budget = 0;      // in the groups
  std::int64_t total = 0;       // trainable: groups, coefficients, masks and ordinary ones
  std::int64_t unused = 0;      // in the groups, but used by no layer
  std::int64_t unassigned = 0;  // of the wanted budget, in no group: every layer has what it needs
};

/// `ordinary`: the number of trainable parameters that no group has (norms, biases).
Plan make_plan(std::span<const WeightRequest> requests, std::int64_t ordinary, const PlanOptions& options);

nlohmann::json to_json(const Plan& plan);
/// A table to read: the counts, the groups, the layers.
std::string text(const Plan& plan);

}  // namespace ssn
