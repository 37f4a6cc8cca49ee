#pragma once
#include "tools/training/phases.h"
#include "tools/training/profile.h"

namespace ssn {

/// A processor that need not be here, by what it sustains in training.
struct Processor {
  double flops = 0;         // a second, of convolutions and matrix products
  double bandwidth = 8e11;  // bytes a second, of its memory
};

/// A step of one rank as `config` trains, from a dry run: the products' FLOPs up to each sum, and what passes
/// through memory in generating weights (read and written once in forward, and so in backward) and in the
/// optimizer, by the processor's rates. What else a step does counts only as far as `flops` has it.
SumSchedule modelled_schedule(const TrainConfig& config, const InputShape& input, const Processor& processor);

/// Of each budget, in place of profile_steps.
std::vector<Profile> model_steps(const TrainConfig& config, const std::vector<std::string>& budgets,
                                 const InputShape& input, const Processor& processor);

}  // namespace ssn
