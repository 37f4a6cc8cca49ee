#pragma once
#include <cstdint>
#include <vector>

#include "autograd/parameters.h"
#include "ssn/plan.h"

// Start values, as functions of the element's index.
namespace ssn {

/// A group's parameters: normal with the standard deviation sqrt(2 / fan_in) of the most frequent shape (in
/// the group) whose templates cover the element; of a 3x3 filter (fan_in 9) where none does. A group of one
/// layer thus starts as that layer would without sharing.
Parameters::Init initial_group(const Plan& plan, int group);
/// A layer's alpha: the layers of the group with the same K_i have orthonormal rows, as far as there are as
/// many directions (orthonormal_rows).
Parameters::Init initial_alpha(const Plan& plan, int layer);
/// A group's masks: 1 / (window · (tiles − 1)), as in the published code.
Parameters::Init initial_mask(const Plan& plan, int group);

/// The orthonormal factor of a (rows, cols) matrix, row-major: of its transpose if rows < cols, so that the
/// smaller number of directions is orthonormal; R's diagonal is positive, which makes it unique.
std::vector<double> orthonormal_rows(std::vector<double> matrix, std::int64_t rows, std::int64_t cols);

}  // namespace ssn
