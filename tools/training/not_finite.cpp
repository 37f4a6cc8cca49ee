#include "tools/training/not_finite.h"

#include <algorithm>

namespace ssn {
namespace {

struct Finding {
  int loss_finite;
  std::int64_t element;  // -1: none
};

/// "group 0, which conv1, conv2 use", "fc.bias".
std::string parameter_text(const Model& model, std::int64_t element) {
  const auto& entries = model.parameters.entries();
  const auto entry = std::ranges::find_if(entries, [&](const Parameters::Entry& e) {
    return element >= e.range.first && element < e.range.first + e.range.size;
  });
  if (entry == entries.end()) return fmt::format("element {}", element);
  if (entry->section != Section::group) return entry->name;
  const auto number = static_cast<std::size_t>(std::ranges::count_if(
      entries.begin(), entry, [](const auto& e) { return e.section == Section::group; }));
  std::vector<std::string> layers;
  for (const int layer : model.plan().groups[number].layers)
    layers.push_back(model.plan().layers[static_cast<std::size_t>(layer)].name);
  constexpr std::size_t kNamed = 6;
  const std::size_t more = layers.size() - std::min(layers.size(), kNamed);
  layers.resize(layers.size() - more);
  return fmt::format("{} (of {}{})", entry->name, fmt::join(layers, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Empty on one rank alone.
std::string on_ranks(const Comm& comm, const std::vector<int>& ranks) {
  return comm.size() == 1
             ? ""
             : fmt::format(" on rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

std::string not_finite_text(Comm& comm, const Model& model, bool loss_finite,
                            std::optional<std::int64_t> element) {
  const std::vector<Finding> all = comm.allgather(Finding{loss_finite, element.value_or(-1)});
  std::vector<int> losses, gradients;
  std::int64_t first = -1;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].loss_finite) losses.push_back(static_cast<int>(r));
    if (all[r].element < 0) continue;
    gradients.push_back(static_cast<int>(r));
    if (first < 0 || all[r].element < first) first = all[r].element;
  }
  if (losses.empty() && gradients.empty()) return "the sum of the gradients over the ranks is not finite";
  std::vector<std::string> parts;
  if (!losses.empty()) parts.push_back(fmt::format("the loss is not finite{}", on_ranks(comm, losses)));
  if (!gradients.empty())
    parts.push_back(fmt::format("the gradient is not finite{}, first that of {}", on_ranks(comm, gradients),
                                parameter_text(model, first)));
  return fmt::format("{}", fmt::join(parts, ", and "));
}

}  // namespace ssn
