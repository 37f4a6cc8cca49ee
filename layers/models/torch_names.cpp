#include "layers/models/torch_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <vector>

namespace ssn {
namespace {

/// A rule replaces whole components of a name; the first that fits is taken, then what is behind goes on. A #
/// stands for a number, in `torch` for that of `own` in the same order, and #+1 for the next one. ^: only at
/// the name's beginning.
struct NameRule {
  std::string_view own, torch;
};

constexpr NameRule kResNet[] = {{"shortcut", "downsample.0"}, {"shortcut_bn", "downsample.1"},
                                {"stem.conv1", "conv1.0"},    {"stem.bn1", "conv1.1"},
                                {"stem.conv2", "conv1.3"},    {"stem.bn2", "conv1.4"},
                                {"stem.conv3", "conv1.6"},    {"stem.bn3", "bn1"}};
constexpr NameRule kWideResNet[] = {{"^bn", "bn1"}, {"shortcut", "convShortcut"}};
constexpr NameRule kDenseNet[] = {{"^conv1", "features.conv0"},
                                  {"^bn1", "features.norm0"},
                                  {"^bn", "features.norm5"},
                                  {"^fc", "classifier"},
                                  {"block#.#", "features.denseblock#.denselayer#+1"},
                                  {"transition#", "features.transition#"},
                                  {"bn", "norm"},
                                  {"bn#", "norm#"}};
constexpr NameRule kEfficientNet[] = {{"^conv1", "features.0.0"},
                                      {"^bn1", "features.0.1"},
                                      {"^conv2", "features.8.0"},
                                      {"^bn2", "features.8.1"},
                                      {"^fc", "classifier.1"},
                                      // The first stage's blocks do not expand.
                                      {"stage1.#.depthwise", "features.1.#.block.0.0"},
                                      {"stage1.#.bn2", "features.1.#.block.0.1"},
                                      {"stage1.#.squeeze", "features.1.#.block.1.fc1"},
                                      {"stage1.#.excite", "features.1.#.block.1.fc2"},
                                      {"stage1.#.project", "features.1.#.block.2.0"},
                                      {"stage1.#.bn3", "features.1.#.block.2.1"},
                                      {"stage#.#", "features.#.#.block"},
                                      {"expand", "0.0"},
                                      {"bn1", "0.1"},
                                      {"depthwise", "1.0"},
                                      {"bn2", "1.1"},
                                      {"squeeze", "2.fc1"},
                                      {"excite", "2.fc2"},
                                      {"project", "3.0"},
                                      {"bn3", "3.1"}};
constexpr NameRule kBert[] = {{"embeddings.word", "bert.embeddings.word_embeddings"},
                              {"embeddings.position", "bert.embeddings.position_embeddings"},
                              {"embeddings.segment", "bert.embeddings.token_type_embeddings"},
                              {"embeddings.norm", "bert.embeddings.LayerNorm"},
                              {"encoder.layer.#", "bert.encoder.layer.#"},
                              {"attention.output", "attention.output.dense"},
                              {"attention.norm", "attention.output.LayerNorm"},
                              {"attention", "attention.self"},
                              {"intermediate", "intermediate.dense"},
                              {"output", "output.dense"},
                              {"norm", "output.LayerNorm"},
                              {"head.dense", "cls.predictions.transform.dense"},
                              {"head.norm", "cls.predictions.transform.LayerNorm"},
                              {"head.bias", "cls.predictions.bias"}};
constexpr NameRule kAlbert[] = {{"embeddings.word", "albert.embeddings.word_embeddings"},
                                {"embeddings.position", "albert.embeddings.position_embeddings"},
                                {"embeddings.segment", "albert.embeddings.token_type_embeddings"},
                                {"embeddings.norm", "albert.embeddings.LayerNorm"},
                                {"embeddings.projection", "albert.encoder.embedding_hidden_mapping_in"},
                                {"encoder.layer.#", "albert.encoder.albert_layer_groups.#.albert_layers.0"},
                                {"attention.output", "attention.dense"},
                                {"attention.norm", "attention.LayerNorm"},
                                {"intermediate", "ffn"},
                                {"output", "ffn_output"},
                                {"norm", "full_layer_layer_norm"},
                                {"head.dense", "predictions.dense"},
                                {"head.norm", "predictions.LayerNorm"},
                                {"head.bias", "predictions.bias"}};

std::span<const NameRule> rules_of(std::string_view network) {
  if (network.starts_with("wide-resnet-50-") || network.starts_with("wrn-50-")) return kResNet;
  if (network.starts_with("wrn-")) return kWideResNet;
  if (network.starts_with("densenet-")) return kDenseNet;
  if (network.starts_with("efficientnet-")) return kEfficientNet;
  if (network.starts_with("bert-")) return kBert;
  if (network.starts_with("albert-")) return kAlbert;
  return kResNet;
}

struct Match {
  std::size_t length;  // of the name
  std::vector<int> numbers;
};

/// If the pattern fits whole components from the name's beginning on.
std::optional<Match> match(std::string_view pattern, std::string_view name) {
  Match found{0, {}};
  for (const char c : pattern) {
    if (c != '#') {
      if (found.length == name.size() || name[found.length++] != c) return {};
      continue;
    }
    int number = 0;
    const char* begin = name.data() + found.length;
    const auto [end, error] = std::from_chars(begin, name.data() + name.size(), number);
    if (error != std::errc() || !std::isdigit(static_cast<unsigned char>(*begin))) return {};
    found.numbers.push_back(number);
    found.length += static_cast<std::size_t>(end - begin);
  }
  if (found.length < name.size() && name[found.length] != '.') return {};
  return found;
}

std::string filled_in(std::string_view torch, const std::vector<int>& numbers) {
  constexpr std::string_view kNext = "#+1";
  std::string out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < torch.size(); ++i) {
    if (torch[i] != '#') {
      out += torch[i];
      continue;
    }
    const bool next = torch.substr(i).starts_with(kNext);
    out += fmt::format("{}", numbers[used++] + (next ? 1 : 0));
    if (next) i += kNext.size() - 1;
  }
  return out;
}

/// Replaces the first components of `rest`, and takes them off.
std::string next_part(std::span<const NameRule> rules, bool first, std::string_view& rest) {
  std::size_t length = std::min(rest.find('.'), rest.size());
  std::string part(rest.substr(0, length));
  for (const NameRule& rule : rules) {
    const bool anchored = rule.own.starts_with('^');
    if (anchored && !first) continue;
    if (const auto found = match(rule.own.substr(anchored ? 1 : 0), rest)) {
      part = filled_in(rule.torch, found->numbers);
      length = found->length;
      break;
    }
  }
  rest.remove_prefix(std::min(length + 1, rest.size()));
  return part;
}

}  // namespace

std::string torch_name(std::string_view network, std::string_view own) {
  const std::string_view leaf = own.substr(own.rfind('.') + 1);
  const bool is_layer = leaf != "gain" && leaf != "bias" && leaf != "running_mean" && leaf != "running_var";
  std::string out;
  for (std::string_view rest = own; !rest.empty();) {
    const bool first = out.empty();
    if (!first) out += '.';
    out += next_part(rules_of(network), first, rest);
  }
  if (leaf == "gain") out.replace(out.size() - leaf.size(), leaf.size(), "weight");
  return is_layer ? out + ".weight" : out;
}

}  // namespace ssn
