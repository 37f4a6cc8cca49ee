#include <fmt/format.h>

#include "autograd/ops.h"
#include "layers/models/zoo.h"
#include "ssn/shared_weights.h"

int main() {
  ssn::Parameters parameters;
  ssn::SharedWeights weights(parameters, {.budget = ssn::Budget::parse("25%")});
  const auto network = ssn::make_network("wrn-16-1", {.channels = 1, .height = 8, .width = 8, .classes = 10},
                                         {weights, parameters});
  weights.build();
  parameters.build();
  const ssn::Tensor images = ssn::Tensor::zeros({4, 8, 8, 1}, ssn::DType::f32);
  ssn::backward(ssn::cross_entropy(network->forward({.images = images}, {.training = true}),
                                   ssn::Tensor::zeros({4}, ssn::DType::i32), 0.0, 0.25));
  fmt::print("{} of {} parameters\n", weights.plan().budget, weights.plan().shareable);
}
