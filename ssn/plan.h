#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "layers/weight.h"
#include "runtime/names.h"
#include "ssn/allocation.h"
#include "ssn/budget.h"
#include "ssn/mapping.h"

namespace ssn {

/// How templates become a weight (paper section 3.2.1).
enum class Combine : std::uint8_t {
  emb,   // a sum, the coefficients being a linear function of the layer's embedding: alpha = W phi + b
  wavg,  // a sum with coefficients of the layer's own
  avg,   // the mean
  rr,    // one template: the q-th layer of the group takes template q mod K_i
};
template <>
struct Names<Combine> {
  static constexpr std::string_view what = "combine", values[] = {"emb", "wavg", "avg", "rr"};
};
/// How a group becomes the weight of a layer that is larger (paper section 3.2.2).
enum class Upsample : std::uint8_t {
  mask,    // repeated, each copy but the first under a trained mask
  inter,   // resized bilinearly
  repeat,  // repeated
};
template <>
struct Names<Upsample> {
  static constexpr std::string_view what = "upsample", values[] = {"mask", "inter", "repeat"};
};
/// Upsample::inter: the matrix that a group is taken as. The weight is (O, R), the group has N parameters.
enum class Inter : std::uint8_t {
  aspect,  // r = max(1, ⌊√(N·O/R)⌋) rows of ⌊N/r⌋, resized to (O, R)
  line,    // one row of N, resized to one row of O·R
  ref,  // the published code's: the largest p of 0.95, 0.90, ... with round(p·O)·round(p·I)·kh·kw <= N
};
template <>
struct Names<Inter> {
  static constexpr std::string_view what = "inter", values[] = {"aspect", "1d", "ref"};
};
enum class MaskScope : std::uint8_t { group, layer };  // whose the masks are
template <>
struct Names<MaskScope> {
  static constexpr std::string_view what = "masks", values[] = {"group", "layer"};
};
enum class MaskInit : std::uint8_t {
  small,   // 1 / (window · (tiles − 1)), the published code's
  ones,    //
  random,  // ±1
};
template <>
struct Names<MaskInit> {
  static constexpr std::string_view what = "mask-init", values[] = {"small", "ones", "random"};
};
/// Where weights have a fixed factor, so that they start with the deviation that they would have without
/// sharing.
enum class Gain : std::uint8_t {
  automatic,  // where no norm follows and the weights would start larger
  on,         // everywhere
  off,
};
template <>
struct Names<Gain> {
  static constexpr std::string_view what = "gain", values[] = {"auto", "on", "off"};
};
enum class Count : std::uint8_t { groups, total };  // what the budget covers
template <>
struct Names<Count> {
  static constexpr std::string_view what = "count", values[] = {"groups", "total"};
};

struct PlanOptions {
  Budget budget;
  Count count = Count::groups;
  Mapping mapping;
  Combine combine = Combine::emb;
  Upsample upsample = Upsample::mask;
  int templates = 8;            // K, the most a layer gets
  std::int64_t embedding = 24;  // E, elements of an embedding
  bool softmax = false;         // of the coefficients
  Inter inter = Inter::aspect;
  std::int64_t window = 9;  // elements of a mask
  MaskScope masks = MaskScope::group;
  MaskInit mask_init = MaskInit::small;
  Gain gain = Gain::automatic;
  Allocation allocation = Allocation::cursor;
  std::uint64_t seed = 0;  // of the mapping and the initial values
};

enum class Method : std::uint8_t { exact, templates, upsample };
template <>
struct Names<Method> {
  static constexpr std::string_view what = "method", values[] = {"exact", "templates", "upsample"};
};

struct PlannedLayer {
  std::string name;
  WeightKind kind;
  Shape shape;
  std::int64_t fan_in;
  int group;
  Method method;
  /// Of the templates in the group, K_i; exact and upsample by inter: one; by mask or repeat: none.
  std::vector<std::int64_t> offsets;
  std::int64_t tiles = 1;           // upsample by mask or repeat: copies of the group, the last perhaps cut
  std::int64_t rows = 0, cols = 0;  // of each template, where these are resized; 0: they are not
  bool norm_follows = false;
  double deviation = 0;  // as requested

  std::int64_t size() const { return shape.size(); }
  bool resized() const { return rows > 0; }
  /// Elements of the group that a template takes.
  std::int64_t template_size() const { return resized() ? rows * cols : size(); }
};
struct PlannedGroup {
  std::int64_t parameters = 0;
  std::vector<int> layers = {};  // in the order of construction
  std::int64_t tiles = 1;        // the most that a layer needs; masks of the group are tiles − 1
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
  std::int64_t unassigned = 0;  // of the wanted budget, for nothing: every layer has what it needs, or
                                // (Count::total) the next larger groups would need more beside themselves
};

/// `ordinary`: the number of trainable parameters that no group has (norms, biases).
///
/// A group of one layer that has exactly its size is that layer's weight, whatever the options say. With
/// Count::total the budget is for everything trainable and a share of `original`: the groups are as large as
/// coefficients and masks, which depend on them, leave room for.
Plan make_plan(std::span<const WeightRequest> requests, std::int64_t ordinary, const PlanOptions& options);
/// What a layer's templates are resized to, where they are: (O, R) of its shape; Inter::line: (1, O·R).
Grid resized_to(const Plan& plan, const PlannedLayer& layer);
/// The name of a group's parameters.
std::string group_name(int group);
/// Of what a layer's weight is made beside these, the parameters' names; empty: there are none.
struct RecipeNames {
  std::string masks;         // the group's or the layer's
  std::string coefficients;  // the layer's alpha, or phi with a projection
  std::string projection;    // W; b is kBiasOf behind it
};
inline constexpr const char* kBiasOf = ".bias";
RecipeNames recipe_names(const Plan& plan, int layer);
/// Elements of the group that no layer reads.
std::int64_t unused(const Plan& plan, const PlannedGroup& group);

/// With it and the parameters anyone can generate the weights: docs/checkpoint-format.md.
nlohmann::json to_json(const Plan& plan);
/// Each layer's group, from what to_json() wrote: with these and MappingKind::file the mapping is the same.
Labels labels_of(const nlohmann::json& plan);
/// A table to read: the counts, the groups, the layers.
std::string text(const Plan& plan);
/// The same of what to_json() wrote, also in an earlier version.
std::string plan_text(const nlohmann::json& plan);

}  // namespace ssn
