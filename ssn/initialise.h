#pragma once
#include <cstdint>
#include <vector>

#include "autograd/parameters.h"
#include "ssn/plan.h"

// Start values, as functions of the element's index.
namespace ssn {

/// A group's parameters: normal with the least standard deviation of its layers, each the one that its layer
/// asks for, or sqrt(2 / fan_in), so that a group of one layer starts as that layer would without sharing.
/// Where a norm follows, a step turns a weight in proportion to 1 / deviation²: with a deviation that suits
/// smaller layers (the published code's; sqrt(2 / 9) where none fits) the largest ones hardly move during the
/// first epochs.
Parameters::Init initial_group(const Plan& plan, int group);
/// What the layer's templates are combined with, alpha (K_i) or phi (E): among the layers of the group with
/// the same K_i the rows are orthonormal, as far as there are as many directions (orthonormal_rows).
Parameters::Init initial_coefficients(const Plan& plan, int layer);
/// W (K_i, E) and b (K_i) of the group's layers with K_i templates: uniform in ±0.6, which makes coefficients
/// of about ±0.5, embeddings being unit vectors. With less (PyTorch's ±1 / sqrt(E), as in the published code)
/// a step turns a sum of templates so far that training starts slowly; with more the layers that no norm
/// follows move the group's parameters too far.
Parameters::Init initial_projection(const Plan& plan, int group, std::int64_t templates);
Parameters::Init initial_projection_bias(const Plan& plan, int group, std::int64_t templates);
/// Masks for `tiles` copies, by MaskInit; `name` is theirs.
Parameters::Init initial_mask(const Plan& plan, const std::string& name, std::int64_t tiles);

/// The fixed factor of the layer's weight: its deviation without sharing over the root
/// mean square that the start values give it on average (group values normal, the actual coefficients and
/// masks). Gain::automatic: of layers that no norm follows, and at most 1, for a step moves the weight by
/// gain² of what it would without, and diverges where that is much more. 1 of a layer that is not shared.
double layer_gain(const Plan& plan, int layer);

/// The orthonormal factor of a (rows, cols) matrix, row-major: of its transpose if rows < cols, so that the
/// smaller number of directions is orthonormal; R's diagonal is positive, which makes it unique.
std::vector<double> orthonormal_rows(std::vector<double> matrix, std::int64_t rows, std::int64_t cols);

}  // namespace ssn
