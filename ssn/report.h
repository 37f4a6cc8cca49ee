#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ssn/plan.h"

namespace ssn {

/// What a plan costs in training, in bytes of 4-byte parameters and weights.
struct Cost {
  std::int64_t parameters, gradients, optimizer;
  // Generated weights and their gradients held at most, by policy, on processors: on a GPU convolutions have
  // copies of what is a stretch of theta here, in cuDNN's order.
  std::int64_t weights_lean, weights_eager;
  std::int64_t wire;                         // that a rank hands to the sum in a step: 4 · total
};
/// `states`: numbers that the optimizer keeps for each parameter (momentum: 1).
Cost cost(const Plan& plan, int states = 1);
nlohmann::json to_json(const Cost& cost);
std::string text(const Cost& cost);

/// What generating every weight once adds to the network's own work, in FLOPs (a multiply-add is two; those
/// of fixed gains aside). A forward pass of `batch` samples is batch · network; its backward twice that.
struct Work {
  double network;                      // forward, of one sample (layers/models/outline.h)
  double generate, generate_backward;  // all weights; the gradients of what they are made of
  std::int64_t batch = 1;
  std::string sample = "image";  // what one is called

  /// Of generation in the forward pass of so many samples, in percent.
  double percent_of_forward(std::int64_t samples) const;
  /// In a step with the batch, in percent. Without keeping weights (lean) they are generated twice.
  double percent_of_step(bool lean) const;
};
Work work(const Plan& plan, double network, std::int64_t batch, std::string sample = "image");
nlohmann::json to_json(const Work& work);
std::string text(const Work& work);

/// What of it a user may want to act on: a line each.
std::string advice(const Plan& plan, const Cost& cost, const Work& work);

}  // namespace ssn
