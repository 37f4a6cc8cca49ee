#pragma once
#include "autograd/ops.h"

namespace ssn {

/// linear(x, generated_weight(recipe), b), to rounding, without a weight in memory; b may be none. It has no
/// gradient: only where nothing is recorded. Not of resized weights.
Var generated_linear(const Var& x, const WeightRecipe& recipe, const Var& b);

/// Whether that takes less time than generating the weight and multiplying: for few rows, as it saves writing
/// and reading the weight, while its product is no library's. A function of its arguments alone,
/// so that --shards' promise is kept: with the same rows in each shard an evaluation gives the same bits on
/// any number of ranks. (Evaluations compute in f32; bf16 is for other users of the library.)
bool fuses_linear(const WeightRule& rule, std::int64_t rows, DType activations, Device device);

}  // namespace ssn
