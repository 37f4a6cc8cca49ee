#pragma once
#include <memory>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "layers/models/network.h"

namespace ssn {

/// The network of this name, its weights and parameters asked for in `scope`. An unknown name is a UsageError
/// with the nearest known one; so are images too small for it, and text for a network of
/// images.
std::unique_ptr<Network> make_network(std::string_view name, const NetworkTask& task, const Scope& scope,
                                      const NetworkSize& size = {});
/// Names and patterns that make_network knows, for help texts: "wrn-<depth>-<width>", "wrn-50-2",
/// "resnet-20", ...
std::vector<std::string> network_names();

}  // namespace ssn
