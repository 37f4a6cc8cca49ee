#pragma once
#include <optional>
#include <string>

#include "tools/training/task.h"

namespace ssn {

/// What of a step is not finite, and on which ranks: "the loss on rank 1 and the gradient there, first that
/// of group 0, which conv1 and conv2 use". `element`: the first of this rank's gradient. Collective; the same
/// text on all ranks.
std::string not_finite_text(Comm& comm, const Model& model, bool loss_finite,
                            std::optional<std::int64_t> element);

}  // namespace ssn
