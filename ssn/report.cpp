#include "ssn/report.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/progress.h"
#include "ssn/initialise.h"

namespace ssn {
namespace {
constexpr std::int64_t kBytes = 4;  // of a parameter

/// Elements of generated weights and of weight gradients that are held at most.
struct Held {
  std::int64_t weights, gradients;
};

/// Whether the layer's weight is a stretch of its group, rather than made of it.
bool is_view(const Plan& plan, int layer) {
  const PlannedLayer& l = plan.layers[layer];
  return l.method == Method::exact && !l.resized() && layer_gain(plan, layer) == 1;
}

Held lean(const Plan& plan) {
  Held h{};
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const PlannedLayer& l = plan.layers[i];
    if (!is_view(plan, i)) h.weights = std::max(h.weights, l.size());
    h.gradients = std::max(h.gradients, l.size());
  }
  return h;
}

/// A gradient stays until its group's last: all groups of several layers may be open at once, and one layer
/// of a group of its own comes on top.
Held eager(const Plan& plan) {
  Held h{};
  std::int64_t alone = 0;
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    const PlannedLayer& l = plan.layers[i];
    if (!is_view(plan, i)) h.weights += l.size();
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

/// FLOPs of making one weight, and of the gradients behind it.
struct Making {
  double forward, backward;
};

Making making(const Plan& plan, const PlannedLayer& l) {
  const PlanOptions& o = plan.options;
  const auto n = static_cast<double>(l.size());
  if (l.method == Method::upsample && !l.resized()) {
    const double copied = n - static_cast<double>(plan.groups[l.group].parameters);
    return o.upsample == Upsample::mask ? Making{copied, 4 * copied} : Making{0, copied};
  }
  const double resize = l.resized() ? 4 * 2 * n : 0;  // four multiply-adds an element
  if (l.offsets.size() < 2) return {resize, resize};
  const auto k = static_cast<double>(l.offsets.size());
  const double sum = 2 * k * static_cast<double>(l.template_size());
  const double project = o.combine == Combine::emb ? 2 * k * static_cast<double>(o.embedding) : 0;
  const bool trained = o.combine != Combine::avg;  // the coefficients, whose gradients are sums as long
  return {resize + sum + project, resize + sum + (trained ? sum : 0) + 2 * project};
}

/// "1.23 G".
std::string short_number(double x) {
  constexpr const char* units[] = {"", "K", "M", "G", "T", "P"};
  std::size_t u = 0;
  for (; x >= 999.5 && u + 1 < std::size(units); ++u) x /= 1000;
  return fmt::format("{:.3g} {}", x, units[u]);
}

/// Percent, with two digits that say something.
std::string short_percent(double x) {
  return x < 99.5 ? fmt::format("{:.2g}%", x) : fmt::format("{:.0f}%", x);
}
double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
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

double Work::percent_of_forward(std::int64_t samples) const {
  return percent(generate, static_cast<double>(samples) * network);
}
double Work::percent_of_step(bool lean) const {
  return percent((lean ? 2 : 1) * generate + generate_backward, 3 * static_cast<double>(batch) * network);
}

Work work(const Plan& plan, double network, std::int64_t batch, std::string sample) {
  Work w{network, 0, 0, batch, std::move(sample)};
  for (const PlannedLayer& l : plan.layers) {
    const Making m = making(plan, l);
    w.generate += m.forward;
    w.generate_backward += m.backward;
  }
  return w;
}

nlohmann::json to_json(const Work& w) {
  return {{"batch", w.batch},
          {"network_forward_image", w.network},
          {"generate", w.generate},
          {"generate_backward", w.generate_backward},
          {"percent_of_forward_image", w.percent_of_forward(1)},
          {"percent_of_forward_batch", w.percent_of_forward(w.batch)},
          {"percent_of_step_eager", w.percent_of_step(false)},
          {"percent_of_step_lean", w.percent_of_step(true)}};
}

std::string text(const Work& w) {
  const auto line = [](double flops, const std::string& what) {
    return fmt::format("{:>16}FLOP  {}\n", short_number(flops), what);
  };
  const std::string network = line(
      w.network, fmt::format("the network's convolutions and linear layers, forward, for one {}", w.sample));
  if (w.generate_backward == 0) return network;
  const std::string of_batch =
      w.batch > 1 ? fmt::format(", {} of {}", short_percent(w.percent_of_forward(w.batch)), w.batch) : "";
  return network +
         line(w.generate, fmt::format("generating all weights: {} of the forward pass of one {}{}",
                                      short_percent(w.percent_of_forward(1)), w.sample, of_batch)) +
         line(
             w.generate_backward,
             fmt::format("carrying their gradients back: with the above {} of a step of {} {}(s), {} if lean",
                         short_percent(w.percent_of_step(false)), w.batch, w.sample,
                         short_percent(w.percent_of_step(true))));
}

std::string advice(const Plan& plan, const Cost& cost, const Work& work) {
  constexpr double kMuch = 2;                // percent
  constexpr std::int64_t kHeavy = 64 << 20;  // bytes
  std::string s;
  const auto say = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    s += "- " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  };
  const PlanOptions& o = plan.options;
  const std::int64_t dense = kBytes * plan.original;
  if (10 * cost.wire < 9 * dense)
    say("The sum over the ranks takes {}B a step, {} of the {}B of the network without sharing.",
        short_number(static_cast<double>(cost.wire)),
        short_percent(percent(static_cast<double>(cost.wire), static_cast<double>(dense))),
        short_number(static_cast<double>(dense)));
  if (const std::int64_t more = cost.weights_eager - cost.weights_lean; more > kHeavy)
    say("If memory is short, --weights lean holds {}B less than eager; it generates each weight twice, {} "
        "of a step's work instead of {}.",
        short_number(static_cast<double>(more)), short_percent(work.percent_of_step(true)),
        short_percent(work.percent_of_step(false)));
  if (work.percent_of_step(false) > kMuch)
    say("With {} {}(s) a pass, generation is {} of the work: a larger --batch or fewer --templates lower "
        "that.",
        work.batch, work.sample, short_percent(work.percent_of_step(false)));
  if (const double unused = percent(static_cast<double>(plan.unused), static_cast<double>(plan.budget));
      unused > kMuch)
    say("{} of the groups is used by no layer, but counts: {}.", short_percent(unused),
        o.allocation == Allocation::ref_block ? "--allocation cursor leaves less"
                                              : "try other --templates, or a slightly smaller budget");
  if (plan.unassigned > 0)
    say("{} of the budget is for nothing: {} is enough.", grouped(plan.unassigned),
        grouped(o.count == Count::total ? plan.total : plan.budget));
  std::int64_t upsampled = 0;
  for (const PlannedLayer& l : plan.layers)
    if (l.method == Method::upsample) upsampled += l.size();
  if (const double share = percent(static_cast<double>(upsampled), static_cast<double>(plan.shareable));
      share > 50)
    say("{:.0f}% of the weights are larger than their group and made by --upsample {}: that choice matters "
        "more here than --combine.",
        share, name_of(o.upsample));
  return s;
}

}  // namespace ssn
