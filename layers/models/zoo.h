#pragma once
#include <memory>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "layers/models/network.h"

namespace ssn {

/// The network of this name, its weights and parameters asked for in `scope`. An unknown name is a UsageError
/// with the nearest known one; so are images too small for it, and text for a network of
/// images, or images for one of text.
std::unique_ptr<Network> make_network(std::string_view name, const NetworkTask& task, const Scope& scope,
                                      const NetworkSize& size = {});
/// Names and patterns that make_network knows, for help texts:
///   wrn-<depth>-<width>       for CIFAR (Zagoruyko and Komodakis, 2016)
///   wrn-50-<width>            with a stem of three 3×3 convolutions, as in the code of Shapeshifter Networks
///   wide-resnet-50-<width>    the same with the stem of the other networks for ImageNet, as in torchvision
///   resnet-10, -18, ...       for ImageNet;  resnet-20, -32, ...: for CIFAR (He et al., 2016)
///   densenet-<depth>-<growth> for CIFAR;  densenet-121, ...: for ImageNet (DenseNet-BC, Huang et al., 2017)
///   efficientnet-b0, ...      (Tan and Le, 2019)
/// Those for ImageNet halve images of fewer than kLargeImage pixels a side less often in their stem.
std::vector<std::string> network_names();

}  // namespace ssn
