#include "layers/models/zoo.h"

#include <algorithm>
#include <charconv>

#include "layers/models/resnet.h"
#include "layers/models/wrn.h"
#include "layers/models/wrn50.h"
#include "runtime/text.h"

namespace ssn {
namespace {

constexpr int kResNetDepths[] = {20, 32, 44, 56, 110};

/// The numbers of "stem-12-3" behind "stem-"; empty if the name is of another form.
std::vector<int> numbers_behind(std::string_view name, std::string_view stem) {
  std::vector<int> numbers;
  if (!name.starts_with(stem)) return {};
  const char *p = name.data() + stem.size(), *end = name.data() + name.size();
  while (p < end && *p == '-') {
    int value = 0;
    const auto [next, error] = std::from_chars(p + 1, end, value);
    if (error != std::errc() || value <= 0 || value > 100000) return {};
    numbers.push_back(value);
    p = next;
  }
  return p == end ? numbers : std::vector<int>{};
}

}  // namespace

std::vector<std::string> network_names() {
  std::vector<std::string> names = {"wrn-<depth>-<width>", "wrn-50-<width>"};
  for (int depth : kResNetDepths) names.push_back(fmt::format("resnet-{}", depth));
  return names;
}

std::unique_ptr<Network> make_network(std::string_view name, const NetworkTask& t, const Scope& scope,
                                      const NetworkSize& size) {
  check_usage(t.length == 0, "network", "{} reads images, not text", name);
  check_usage(t.channels > 0 && t.height > 0 && t.width > 0 && t.classes > 1, "network",
              "needs images of at least one pixel and two classes, found {}x{}x{} and {} classes", t.channels,
              t.height, t.width, t.classes);
  if (const auto n = numbers_behind(name, "wrn"); n.size() == 2 && n[0] == 50)
    return std::make_unique<WideResNet50>(scope, n[1], t.channels, t.classes, size);
  if (const auto n = numbers_behind(name, "wrn"); n.size() == 2)
    return std::make_unique<WideResNet>(scope, n[0], n[1], t.channels, t.classes, size);
  if (const auto n = numbers_behind(name, "resnet"); n.size() == 1 && std::ranges::count(kResNetDepths, n[0]))
    return std::make_unique<CifarResNet>(scope, n[0], t.channels, t.classes, size);
  std::vector<std::string> known = {"wrn-16-1", "wrn-16-2", "wrn-16-4", "wrn-28-10",
                                    "wrn-40-2", "wrn-40-4", "wrn-50-2"};
  for (int depth : kResNetDepths) known.push_back(fmt::format("resnet-{}", depth));
  const std::string near = nearest_name(name, known);
  fail_usage("network", "there is no network '{}'; {}known are {}", name,
             near.empty() ? "" : fmt::format("did you mean '{}'? ", near), fmt::join(network_names(), ", "));
}

}  // namespace ssn
