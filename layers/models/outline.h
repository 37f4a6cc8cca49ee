#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "layers/models/zoo.h"

namespace ssn {

/// What a network asks for; it is never built.
struct Outline {
  std::vector<WeightRequest> weights;
  std::int64_t ordinary = 0;  // trainable parameters beside the weights: norms, biases

  /// Elements of all weights.
  std::int64_t shareable() const;
  /// Trainable in all, without sharing.
  std::int64_t original() const { return shareable() + ordinary; }
};
Outline outline(std::string_view network, const NetworkTask& task, const NetworkSize& size = {});

/// n samples of zeros, as the networks made for a task read them; of each sequence 15% is to be predicted.
NetworkInput zeros_for(const NetworkTask& task, std::int64_t n);

/// FLOPs of the convolutions and linear layers in a forward pass of one sample (autograd/flops.h).
double forward_flops(std::string_view network, const NetworkTask& task, const NetworkSize& size = {});

/// The largest size of a network at which `(outline.*count)()` is at most `limit`: narrower, and only if one
/// channel everywhere is too much, shorter. If nothing fits, a UsageError that says the least possible.
NetworkSize reduced_size(std::string_view network, const NetworkTask& task,
                         std::int64_t (Outline::*count)() const, std::int64_t limit);

}  // namespace ssn
