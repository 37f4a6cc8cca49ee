#pragma once
#include <string>
#include <string_view>

namespace ssn {

/// The name that a tensor of the network without sharing has in PyTorch's state dictionaries, where `own` is
/// its name here: a layer's ("layer1.0.conv1", for its weight), a parameter's ("layer1.0.bn1.gain"), or a
/// running statistic's. The names are those of
/// - ResNets, wide-resnet-50-N, DenseNets, EfficientNets: torchvision's; a ResNet with a stem of three
///   convolutions (wrn-50-N): timm's, with `stem_type="deep"`; the ResNets for CIFAR: torchvision's too,
///   their shortcuts have no parameters
/// - wrn-N-N: those of the PyTorch code that is used most (xternalz/WideResNet-pytorch):
/// block1.layer.0.conv1,
///   block2.layer.0.convShortcut, bn1 for the norm in front of the classifier
/// - bert: transformers' BertForMaskedLM; albert: AlbertForMaskedLM with as many groups of layers as layers
///   (`num_hidden_groups`). The output's matrix is the embeddings', as there, and is not named again.
std::string torch_name(std::string_view network, std::string_view own);

}  // namespace ssn
