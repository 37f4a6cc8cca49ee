#include "ssn/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/progress.h"

namespace ssn {
namespace {
constexpr std::int64_t kBytes = 4;  // of a parameter

/// Elements of generated weights and of weight gradients that are held at most.
struct Held {
  std::int64_t weights, gradients;
};

Held lean(const Plan& plan) {
  Held h{};
  for (const PlannedLayer& l : plan.layers) {
    if (l.method != Method::exact) h.weights = std::max(h.weights, l.size());  // an exact one is a view
    h.gradients = std::max(h.gradients, l.size());
  }
  return h;
}

/// A gradient stays until its group's last: all groups of several layers may be open at once, and one layer
/// of a group of its own comes on top.
Held eager(const Plan& plan) {
  Held h{};
  std::int64_t alone = 0;
  for (const PlannedLayer& l : plan.layers) {
    if (l.method != Method::exact) h.weights += l.size();
    if (plan.groups[l.group].layers.size() > 1)
      h.gradients += l.size();
    else
      alone = std::max(alone, l.size());
  }
  h.gradients += alone;
  return h;
}

std::int64_t bytes(Held h) {
  return kBytes * (h.weights + h.gradients);
}
}  // namespace

Cost cost(const Plan& plan, int states) {
  const std::int64_t all = kBytes * plan.total;
  return {all, all, states * all, bytes(lean(plan)), bytes(eager(plan)), all};
}

nlohmann::json to_json(const Cost& cost) {
  return {{"parameters", cost.parameters},       {"gradients", cost.gradients},
          {"optimizer", cost.optimizer},         {"weights_lean", cost.weights_lean},
          {"weights_eager", cost.weights_eager}, {"wire_bytes_per_step", cost.wire}};
}

std::string text(const Cost& cost) {
  const auto line = [](std::int64_t n, std::string_view what) {
    return fmt::format("{:>16} bytes  {}\n", grouped(n), what);
  };
  return line(cost.parameters, "parameters") + line(cost.gradients, "gradients") +
         line(cost.optimizer, "optimizer state") +
         line(cost.weights_lean, "generated weights and their gradients, lean (at most)") +
         line(cost.weights_eager, "generated weights and their gradients, eager (at most)") +
         line(cost.wire, "handed to the sum over the ranks, a step");
}

}  // namespace ssn
