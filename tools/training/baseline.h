#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "layers/models/outline.h"
#include "tools/training/config.h"

// What the method is compared with, under the same budget.
namespace ssn {

/// How a network was made smaller.
struct Reduction {
  NetworkSize size;
  std::int64_t original, shareable;  // parameters of the network in full, as in Plan
};
nlohmann::json to_json(const Reduction& reduction);
std::string text(const Reduction& reduction);

/// The plan that a configuration asks for, and the size of the network.
struct Setting {
  PlanOptions plan;
  std::optional<Reduction> reduction;  // --baseline reduced
};
/// `reduced`: the largest network that has at most the budget's parameters (reduced_size; those that could be
/// shared are counted, or all with --count total), without sharing. `swrn`: soft sharing (Savarese and Maire,
/// 2019): a bank of templates for each type and shape of layers, the coefficients trained as they are. Both
/// are functions of the configuration and the task alone. Flags that contradict a baseline, and budgets that
/// are too small for it, are a UsageError.
Setting setting(const TrainConfig& config, const NetworkTask& task);

}  // namespace ssn
