#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/shape.h"
#include "ssn/budget.h"
#include "runtime/names.h"

// The arithmetic behind a plan: how large the groups are, and where in its group a layer's templates lie.
namespace ssn {

/// Divides `budget` over the groups: a group of one layer gets that layer's size; the rest goes to the others
/// in proportion to the sum of their layers' sizes. If less than one parameter is left for each of them, all
/// groups get their proportional share. Every share is at least 1, and they add up to the budget exactly
/// (floors plus largest remainders; ties: the lower group), unless all groups have one layer and the budget
/// is larger than all layers: then what is over stays out. A budget below one parameter a group is a
/// UsageError.
std::vector<std::int64_t> split_budget(std::span<const std::int64_t> sizes, std::span<const int> groups,
                                       int count, std::int64_t budget);
/// Each group as large as its largest layer.
std::vector<std::int64_t> largest_layers(std::span<const std::int64_t> sizes, std::span<const int> groups,
                                         int count);

/// The layers of each shape, in order; the most frequent shape first (ties: the one seen first).
std::vector<std::vector<int>> by_frequency(std::span<const Shape> shapes);

/// The rule that spreads templates over a group (the paper's round robin).
enum class Allocation : std::uint8_t {
  cursor,     // the next free slots, slots being multiples of the layer's size
  ref_block,  // the published code's: a counter for each length of a layer's templates
  resized,  // every layer takes the same K templates of ⌊N/K⌋, as matrices resized to its shape: what the
            // preliminary training does (paper section 3.3)
};
template <>
struct Names<Allocation> {
  static constexpr std::string_view what = "allocation", values[] = {"cursor", "ref_block", "resized"};
};

/// For each layer of a group with `parameters` parameters, in order, the starts of its K_i = min(K, ⌊N/n⌋)
/// templates; none for a layer that is larger than the group.
using Offsets = std::vector<std::vector<std::int64_t>>;
/// The cursor leaves unused what lies before the next multiple of a layer's size as it moves on, less than
/// that layer each time, and at the group's end less than two of the layer that turns.
Offsets allocate_cursor(std::span<const std::int64_t> sizes, std::int64_t parameters, int templates);
Offsets allocate_ref_block(std::span<const Shape> shapes, std::int64_t parameters, int templates);
/// One template each, whatever the rule (Combine::rr): layer q of the group takes template q mod K_i.
Offsets allocate_one(std::span<const std::int64_t> sizes, std::int64_t parameters, int templates);

/// The elements of one of K evenly sized templates: ⌊N/K⌋, but at least 1.
std::int64_t even_template(std::int64_t parameters, int templates);

/// A matrix that is resized to a weight.
struct Grid {
  std::int64_t rows, cols;
};
/// Of `parameters` parameters as many as make r = max(1, ⌊√(parameters·O/R)⌋) rows (O, R: of the shape; R = 1
/// where it has one axis) of c = ⌊parameters/r⌋; r at most `parameters`.
Grid aspect_grid(std::int64_t parameters, const Shape& shape);
/// The published code's: round(p·O) rows of round(p·I)·kh·kw, where p is the first of 0.95, 0.90, ... 0.05
/// with which it has at most `parameters` elements. None, or none but an empty one, is a UsageError.
Grid ref_grid(std::int64_t parameters, const Shape& shape);

}  // namespace ssn
