#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "layers/weight.h"

namespace ssn {

/// How layers are assigned to parameter groups (paper section 3.3).
enum class MappingKind : std::uint8_t {
  single,  // all in one group
  random,  // into P groups by chance, none empty
};
struct Mapping {
  MappingKind kind = MappingKind::single;
  int groups = 0;  // P; 0 leaves it to the kind
};

std::string_view name_of(MappingKind kind);
/// An unknown name is a UsageError that suggests the nearest.
MappingKind mapping_kind(std::string_view name);

/// Each layer's group, numbered 0, 1, ... by first appearance. A kind and a number of groups that contradict
/// each other or do not fit the network are a UsageError.
std::vector<int> assign_groups(const Mapping& mapping, std::span<const WeightRequest> layers,
                               std::uint64_t seed);

}  // namespace ssn
