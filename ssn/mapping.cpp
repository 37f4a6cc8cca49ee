#include "ssn/mapping.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/random.h"
#include "runtime/text.h"

namespace ssn {
namespace {

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

/// A group for each distinct key, numbered 0, 1, ... by first appearance.
template <class Items, class KeyOf>
std::vector<int> groups_by(const Items& items, KeyOf key_of) {
  std::map<decltype(key_of(*std::begin(items))), int> number;
  std::vector<int> label;
  for (const auto& item : items)
    label.push_back(number.try_emplace(key_of(item), static_cast<int>(number.size())).first->second);
  return label;
}
int itself(int label) {
  return label;
}

WeightKind kind_of(const WeightRequest& layer) {
  return layer.kind;
}
std::pair<WeightKind, std::vector<std::int64_t>> kind_and_shape_of(const WeightRequest& layer) {
  return {layer.kind, {layer.shape.begin(), layer.shape.end()}};
}

/// The layer's name without the number of its block, which is what the last part before the layer's own ends
/// with: "layer.*.conv1" of "layer.3.conv1", "denselayer*.conv1" of "denselayer3.conv1".
std::string name_in_block(std::string_view name) {
  std::size_t end = name.rfind('.');
  while (end != std::string_view::npos && end > 0) {
    const std::size_t start = name.find_last_not_of("0123456789", end - 1) + 1;  // npos + 1 is 0
    if (start < end) return fmt::format("{}*{}", name.substr(0, start), name.substr(end));
    end = name.rfind('.', end - 1);
  }
  return std::string(name);
}
std::pair<std::string, std::vector<std::int64_t>> place_and_shape_of(const WeightRequest& layer) {
  return {name_in_block(layer.name), {layer.shape.begin(), layer.shape.end()}};
}

/// What the labels say of these layers.
std::vector<int> labelled(const Mapping& mapping, std::span<const WeightRequest> layers) {
  const std::string source =
      mapping.source.empty() ? fmt::format("'{}'", name_of(mapping.kind)) : mapping.source;
  std::vector<std::string> names;
  for (const WeightRequest& layer : layers) names.push_back(layer.name);
  for (const auto& [name, group] : mapping.labels) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string nearest = nearest_name(name, names);
    fail_usage("mapping", "{}: the network has no layer '{}'; {}", source, name,
               nearest.empty() ? "`ssn plan` lists its layers" : fmt::format("did you mean '{}'?", nearest));
  }
  std::vector<int> label;
  for (const std::string& name : names) {
    const auto found = mapping.labels.find(name);
    check_usage(found != mapping.labels.end(), "mapping",
                "{}: layer '{}' has no group number; {} of the network's {} layers have one, all need one",
                source, name, mapping.labels.size(), names.size());
    label.push_back(found->second);
  }
  return groups_by(label, itself);
}

std::string text_of_file(const std::string& path) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);  // first: opening a pipe would wait
  std::ifstream file;
  if (regular) file.open(path);
  check_usage(file.is_open(), "mapping", "cannot read {}: {}", path,
              error     ? error.message()
              : regular ? std::strerror(errno)
                        : "it is not a file");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The library's message without its number: "parse error at line 3, column 1: ...".
std::string reason(const nlohmann::json::exception& e) {
  const std::string_view what = e.what();
  const std::size_t end = what.find("] ");
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}
}  // namespace

Mapping parse_mapping(std::string_view text) {
  std::vector<std::string> known = names_of<MappingKind>();
  std::erase(known, name_of(MappingKind::file));  // that has its path for a name
  if (std::find(known.begin(), known.end(), text) != known.end())
    return {.kind = value_named<MappingKind>(text)};
  std::error_code error;
  check_usage(!text.empty() && std::filesystem::exists(text, error), "mapping",
              "'{}' is neither a mapping ({}) nor a file", text, suggestion(text, known));
  return {.kind = MappingKind::file, .source = std::string(text)};
}

Labels parse_labels(const std::string& json, const std::string& source) {
  using Json = nlohmann::json;
  std::set<std::string> names;
  std::string twice;  // the parser keeps the last of equal names
  const auto note_names = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  Json j;
  try {
    j = Json::parse(json, note_names);
  } catch (const Json::exception& e) {
    fail_usage("mapping", "{} is not JSON: {}", source, reason(e));
  }
  check_usage(j.is_object(), "mapping",
              "{} holds a JSON {}; a mapping file is an object: {{\"layer\": group number, ...}}", source,
              j.type_name());
  check_usage(twice.empty(), "mapping", "{}: '{}' is there twice", source, twice);
  Labels labels;
  for (const auto& [name, value] : j.items()) {
    if (!value.is_number()) continue;
    check_usage(value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<int>::max(),
                "mapping", "{}: the group of '{}' is {}; group numbers are 0, 1, 2, ...", source, name,
                value.dump());
    labels[name] = value.get<int>();
  }
  return labels;
}

Labels read_labels(const std::string& path) {
  return parse_labels(text_of_file(path), path);
}

std::vector<int> assign_groups(const Mapping& mapping, std::span<const WeightRequest> layers,
                               std::uint64_t seed) {
  const int count = static_cast<int>(layers.size()), wanted = mapping.groups;
  check_usage(wanted >= 0, "mapping", "the number of groups is {}; it must be positive", wanted);
  std::vector<int> label;
  switch (mapping.kind) {
    case MappingKind::single:
      check_usage(wanted <= 1, "mapping",
                  "'single' has one group, found {}: leave the number out, or choose mapping 'random'",
                  wanted);
      return std::vector<int>(layers.size(), 0);
    case MappingKind::random:
      check_usage(wanted >= 1, "mapping", "'random' needs the number of groups (1 to {})", count);
      check_usage(wanted <= count, "mapping", "{} groups for {} layers: at most one group a layer", wanted,
                  count);
      return groups_by(random_groups(count, wanted, seed), itself);
    case MappingKind::shape: label = groups_by(layers, kind_and_shape_of); break;
    case MappingKind::albert: label = groups_by(layers, place_and_shape_of); break;
    case MappingKind::type: label = groups_by(layers, kind_of); break;
    case MappingKind::learned:
      check_usage(wanted <= count, "mapping", "{} groups for {} layers: at most one group a layer", wanted,
                  count);
      if (mapping.labels.empty()) {
        check(wanted == 1, "mapping", "'learned' has no labels: the search has not run");
        return std::vector<int>(layers.size(), 0);
      }
      [[fallthrough]];
    case MappingKind::file: label = labelled(mapping, layers); break;
  }
  const int found = 1 + *std::max_element(label.begin(), label.end());
  check_usage(wanted == 0 || wanted == found, "mapping",
              "{} gives {} groups, but {} are asked for: leave the number out, or change the mapping",
              mapping.source.empty() ? fmt::format("'{}'", name_of(mapping.kind)) : mapping.source, found,
              wanted);
  return label;
}

}  // namespace ssn
