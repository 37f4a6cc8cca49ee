#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layers/weight.h"
#include "runtime/names.h"

namespace ssn {

/// How layers are assigned to parameter groups (paper section 3.3).
enum class MappingKind : std::uint8_t {
  single,   // all in one group
  random,   // into P groups by chance, none empty
  shape,    // a group for each kind and shape
  type,     // a group for each kind
  albert,   // the same layer of all blocks, as ALBERT's (Lan et al., 2020): a group for each name without the
            // block's number, and shape; so is every layer outside of blocks
  file,     // as a mapping file says
  learned,  // by what a preliminary training found (ssn/search.h); one group needs none and is `single`
};
template <>
struct Names<MappingKind> {
  static constexpr std::string_view what = "mapping", values[] = {"single", "random", "shape",  "type",
                                                                  "albert", "file",   "learned"};
};
/// Layer names → group numbers (any that are not negative; they may have gaps).
using Labels = std::map<std::string, int, std::less<>>;
struct Mapping {
  MappingKind kind = MappingKind::single;
  int groups = 0;           // P; 0 leaves it to the kind
  std::string source = {};  // file: its path, for messages
  Labels labels = {};       // file and learned: of every layer
};

/// `text` is the name of a kind, or else the path of a mapping file, which is not read. Neither the one nor
/// the other is a UsageError that suggests the nearest name.
Mapping parse_mapping(std::string_view text);

/// Mapping files are JSON objects: layer name → group number; values that are no numbers are notes. A file
/// that cannot be read, a number that is no group and a name that is there twice are a UsageError.
Labels parse_labels(const std::string& json, const std::string& source);
Labels read_labels(const std::string& path);

/// Each layer's group, numbered 0, 1, ... by first appearance.
///
/// `single` takes 0 or 1 groups, `random` 1 to as many as there are layers; the other kinds know their
/// number, which `groups` repeats or leaves at 0. `file` and `learned` need a label for every layer and for
/// no other; `learned` without labels is an Error (its search has not run), unless one group is wanted.
/// Whatever else contradicts itself or does not fit the network is a UsageError.
std::vector<int> assign_groups(const Mapping& mapping, std::span<const WeightRequest> layers,
                               std::uint64_t seed);

}  // namespace ssn
