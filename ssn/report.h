#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ssn/plan.h"

namespace ssn {

/// What a plan costs in training, in bytes of 4-byte parameters and weights.
struct Cost {
  std::int64_t parameters, gradients, optimizer;
  std::int64_t weights_lean, weights_eager;  // generated weights and their gradients held at most, by policy
  std::int64_t wire;                         // that a rank hands to the sum in a step: 4 · total
};
/// `states`: numbers that the optimizer keeps for each parameter (momentum: 1).
Cost cost(const Plan& plan, int states = 1);
nlohmann::json to_json(const Cost& cost);
std::string text(const Cost& cost);

}  // namespace ssn
