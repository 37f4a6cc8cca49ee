#pragma once
#include "autograd/var.h"

namespace ssn {

/// (rows), of logits (rows, classes) and labels i32 (rows): how many classes come before the label's by their
/// logits; of equal ones the lower class first (kernels/loss.h). A constant: nothing is carried back.
Var label_ranks(const Var& logits, const Tensor& labels);

}  // namespace ssn
