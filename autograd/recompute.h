#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "autograd/var.h"

namespace ssn {

/// f(inputs), computed without a tape: the tape keeps the inputs alone, and f is called once more when its
/// gradient has arrived (Chen et al., 2016, Training Deep Nets with Sublinear Memory Cost). f returns the
/// same bits both times: it reads its inputs and what does not change before the optimizer's step, and draws
/// by counters. Where nothing is recorded, and
/// within another recomputed(), this is f(inputs).
Var recomputed(std::vector<Var> inputs, std::function<Var(std::span<const Var>)> f);

/// Whether f runs the second time: what a forward pass changes must not change again.
bool recomputing();

/// Whether backward() may ask for a gradient of what is computed now: the tape is on, or f runs the first
/// time.
bool gradient_follows();

/// For an operation that keeps an object from forward to backward (see SharedWeights): make() outside of
/// recomputed(), and within it where f runs the first time; the second time, the object that was made at the
/// same place. A null where nothing is recorded. The objects live as long as the graph.
std::shared_ptr<void> kept_for_backward(const std::function<std::shared_ptr<void>()>& make);

}  // namespace ssn
