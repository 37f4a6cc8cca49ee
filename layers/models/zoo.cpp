#include "layers/models/zoo.h"

#include <algorithm>
#include <charconv>

#include "layers/models/cifar_resnet.h"
#include "layers/models/densenet.h"
#include "layers/models/efficientnet.h"
#include "layers/models/resnet.h"
#include "layers/models/transformer.h"
#include "layers/models/wrn.h"
#include "runtime/text.h"

namespace ssn {
namespace {

constexpr int kCifarResNetDepths[] = {20, 32, 44, 56, 110};

struct NamedResNet {
  int depth;
  ResNet::Architecture architecture;
};
constexpr NamedResNet kResNets[] = {{10, {.blocks = {1, 1, 1, 1}}},
                                    {18, {.blocks = {2, 2, 2, 2}}},
                                    {34, {.blocks = {3, 4, 6, 3}}},
                                    {50, {.blocks = {3, 4, 6, 3}, .bottleneck = true}},
                                    {101, {.blocks = {3, 4, 23, 3}, .bottleneck = true}}};

struct NamedDenseNet {
  int depth;
  std::int64_t growth;
  std::vector<int> blocks;
};
const std::vector<NamedDenseNet>& dense_nets() {
  static const std::vector<NamedDenseNet> all = {{121, 32, {6, 12, 24, 16}},
                                                 {169, 32, {6, 12, 32, 32}},
                                                 {201, 32, {6, 12, 48, 32}},
                                                 {161, 48, {6, 12, 36, 24}}};
  return all;
}
constexpr int kEfficientNets = 8;

/// The numbers of "stem-12-3" behind "stem-"; empty if the name is of another form.
std::vector<int> numbers_behind(std::string_view name, std::string_view stem) {
  std::vector<int> numbers;
  if (!name.starts_with(stem)) return {};
  const char *p = name.data() + stem.size(), *end = name.data() + name.size();
  while (p < end && *p == '-') {
    int value = 0;
    const auto [next, error] = std::from_chars(p + 1, end, value);
    if (error != std::errc() || value <= 0 || value > 10000) return {};
    numbers.push_back(value);
    p = next;
  }
  return p == end ? numbers : std::vector<int>{};
}

std::unique_ptr<Network> make_residual(std::string_view name, const NetworkTask& task, const Scope& scope,
                                       const NetworkSize& size) {
  const ResNet::Architecture fifty{.blocks = {3, 4, 6, 3}, .bottleneck = true};
  if (const auto n = numbers_behind(name, "wrn"); n.size() == 2 && n[0] == 50) {
    ResNet::Architecture wide = fifty;
    wide.width = n[1];
    wide.deep_stem = true;
    return std::make_unique<ResNet>(scope, wide, task, size);
  }
  if (const auto n = numbers_behind(name, "wide-resnet-50"); n.size() == 1) {
    ResNet::Architecture wide = fifty;
    wide.width = n[0];
    return std::make_unique<ResNet>(scope, wide, task, size);
  }
  if (const auto n = numbers_behind(name, "wrn"); n.size() == 2)
    return std::make_unique<WideResNet>(scope, n[0], n[1], task.channels, task.classes, size);
  if (const auto n = numbers_behind(name, "resnet"); n.size() == 1) {
    if (std::ranges::count(kCifarResNetDepths, n[0]))
      return std::make_unique<CifarResNet>(scope, n[0], task.channels, task.classes, size);
    for (const NamedResNet& r : kResNets)
      if (r.depth == n[0]) return std::make_unique<ResNet>(scope, r.architecture, task, size);
  }
  return nullptr;
}

std::unique_ptr<Network> make_densenet(std::string_view name, const NetworkTask& task, const Scope& scope,
                                       const NetworkSize& size) {
  const std::vector<int> n = numbers_behind(name, "densenet");
  if (n.size() == 1)
    for (const NamedDenseNet& d : dense_nets())
      if (d.depth == n[0]) return std::make_unique<DenseNet>(scope, d.blocks, d.growth, task, size);
  if (n.size() != 2) return nullptr;
  check_usage(n[0] >= 10 && (n[0] - 4) % 6 == 0, "densenet",
              "densenet-{}-{}: the depth must be 6n + 4 (22, 40, 100, 190, ...)", n[0], n[1]);
  return std::make_unique<DenseNet>(scope, std::vector<int>(3, (n[0] - 4) / 6), n[1], task, size);
}

std::unique_ptr<Network> make_efficientnet(std::string_view name, const NetworkTask& task, const Scope& scope,
                                           const NetworkSize& size) {
  for (int i = 0; i < kEfficientNets; ++i)
    if (name == fmt::format("efficientnet-b{}", i))
      return std::make_unique<EfficientNet>(scope, i, task, size);
  return nullptr;
}

struct NamedTransformer {
  const char* name;
  int layers, width;
};
constexpr NamedTransformer kTransformers[] = {{"base", 12, 768}, {"large", 24, 1024}};

std::unique_ptr<Network> make_transformer(std::string_view name, const NetworkTask& task, const Scope& scope,
                                          const NetworkSize& size) {
  for (const auto& [stem, architecture] : {std::pair("bert", &Transformer::Architecture::bert),
                                           std::pair("albert", &Transformer::Architecture::albert)}) {
    if (const auto n = numbers_behind(name, stem); n.size() == 2)
      return std::make_unique<Transformer>(scope, architecture(n[0], n[1]), task, size);
    for (const NamedTransformer& t : kTransformers)
      if (name == fmt::format("{}-{}", stem, t.name))
        return std::make_unique<Transformer>(scope, architecture(t.layers, t.width), task, size);
  }
  return nullptr;
}

bool reads_text(std::string_view name) {
  return name.starts_with("bert-") || name.starts_with("albert-");
}

void check_task(std::string_view name, const NetworkTask& t) {
  if (reads_text(name)) {
    check_usage(t.length > 0 && t.vocabulary > 1, "network", "{} reads text, not images", name);
    return;
  }
  check_usage(t.length == 0, "network", "{} reads images, not text", name);
  check_usage(t.channels > 0 && t.height > 0 && t.width > 0 && t.classes > 1, "network",
              "needs images of at least one pixel and two classes, found {}x{}x{} and {} classes", t.channels,
              t.height, t.width, t.classes);
}

/// Names that can be meant by one that is not known.
std::vector<std::string> suggestions() {
  std::vector<std::string> names = {"wrn-16-1",        "wrn-16-2",       "wrn-16-4", "wrn-28-10",
                                    "wrn-40-2",        "wrn-40-4",       "wrn-50-2", "wide-resnet-50-2",
                                    "densenet-100-12", "densenet-190-40"};
  for (const std::string& name : network_names())
    if (!name.ends_with('>')) names.push_back(name);
  return names;
}

}  // namespace

std::vector<std::string> network_names() {
  std::vector<std::string> names = {"wrn-<depth>-<width>", "wrn-50-<width>", "wide-resnet-50-<width>"};
  for (const NamedResNet& r : kResNets) names.push_back(fmt::format("resnet-{}", r.depth));
  for (int depth : kCifarResNetDepths) names.push_back(fmt::format("resnet-{}", depth));
  names.push_back("densenet-<depth>-<growth>");
  for (const NamedDenseNet& d : dense_nets()) names.push_back(fmt::format("densenet-{}", d.depth));
  for (int i = 0; i < kEfficientNets; ++i) names.push_back(fmt::format("efficientnet-b{}", i));
  for (const char* stem : {"bert", "albert"}) {
    for (const NamedTransformer& t : kTransformers) names.push_back(fmt::format("{}-{}", stem, t.name));
    names.push_back(fmt::format("{}-<layers>-<width>", stem));
  }
  return names;
}

std::unique_ptr<Network> make_network(std::string_view name, const NetworkTask& t, const Scope& scope,
                                      const NetworkSize& size) {
  check_task(name, t);
  for (const auto make : {make_residual, make_densenet, make_efficientnet, make_transformer})
    if (auto network = make(name, t, scope, size)) return network;
  const std::string near = nearest_name(name, suggestions());
  fail_usage("network", "there is no network '{}'; {}known are {}", name,
             near.empty() ? "" : fmt::format("did you mean '{}'? ", near), fmt::join(network_names(), ", "));
}

}  // namespace ssn
