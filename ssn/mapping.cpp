#include "ssn/mapping.h"

#include <algorithm>
#include <numeric>

#include "runtime/random.h"
#include "ssn/names.h"

namespace ssn {
namespace {
constexpr std::string_view kNames[] = {"single", "random", "shape", "type", "file", "learned"};

std::vector<int> random_groups(int layers, int groups, std::uint64_t seed) {
  const Random order_draws(seed, "mapping/order"), group_draws(seed, "mapping/group");
  std::vector<int> order(static_cast<std::size_t>(layers)), label(order.size());
  std::iota(order.begin(), order.end(), 0);
  for (int i = layers - 1; i > 0; --i)
    std::swap(order[i], order[order_draws.below(i + 1, static_cast<std::uint64_t>(i))]);
  for (int i = 0; i < layers; ++i)  // the first P layers by chance take one group each, so none is empty
    label[order[i]] =
        i < groups ? i : static_cast<int>(group_draws.below(groups, static_cast<std::uint64_t>(i)));
  return label;
}

std::vector<int> numbered_by_appearance(std::vector<int> label, int groups) {
  std::vector<int> number(static_cast<std::size_t>(groups), -1);
  int next = 0;
  for (int& l : label) {
    if (number[l] < 0) number[l] = next++;
    l = number[l];
  }
  return label;
}
}  // namespace

std::string_view name_of(MappingKind kind) {
  return kNames[static_cast<int>(kind)];
}
Mapping parse_mapping(std::string_view text) {
  return {.kind = enum_of<MappingKind>("mapping", text, kNames)};
}

std::vector<int> assign_groups(const Mapping& mapping, std::span<const WeightRequest> layers,
                               std::uint64_t seed) {
  const int count = static_cast<int>(layers.size());
  check_usage(mapping.groups >= 0, "mapping", "the number of groups is {}; it must be positive",
              mapping.groups);
  switch (mapping.kind) {
    case MappingKind::single:
      check_usage(mapping.groups <= 1, "mapping",
                  "'single' has one group, found {}: leave the number out, or choose mapping 'random'",
                  mapping.groups);
      return std::vector<int>(layers.size(), 0);
    case MappingKind::random:
      check_usage(mapping.groups >= 1, "mapping", "'random' needs the number of groups (1 to {})", count);
      check_usage(mapping.groups <= count, "mapping", "{} groups for {} layers: at most one group a layer",
                  mapping.groups, count);
      return numbered_by_appearance(random_groups(count, mapping.groups, seed), mapping.groups);
    default: break;
  }
  fail("mapping", "kind {} is unknown", static_cast<int>(mapping.kind));
}

}  // namespace ssn
