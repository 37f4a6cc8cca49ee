#pragma once
#include <optional>
#include <vector>

#include "layers/conv_norm.h"
#include "layers/linear.h"
#include "layers/models/network.h"

namespace ssn {

/// DenseNet-BC (Huang et al., 2017, section 3): in a block every layer (norm, ReLU, 1×1 convolution to four
/// times `growth` channels, norm, ReLU, 3×3 convolution to `growth`) reads what all before it gave;
/// transitions (norm, ReLU, 1×1 convolution, average pool) halve the channels and the image. Norm, ReLU, mean
/// over the image, classifier. The stem has 2 · growth channels; see kLargeImage.
class DenseNet : public Network {
 public:
  /// An image must have a pixel left after the last transition: else a UsageError.
  DenseNet(const Scope& scope, const std::vector<int>& blocks, std::int64_t growth, const NetworkTask& task,
           const NetworkSize& size = {});
  Var forward(const NetworkInput& input, const Pass& pass) const override;

 private:
  struct Layer {
    Layer(const Scope& scope, std::int64_t in, std::int64_t inner, std::int64_t out);
    Var operator()(std::span<const Var> xs, const Pass& pass) const;

    Segment segment;
    BatchNorm bn1;
    Conv2d conv1;
    BatchNorm bn2;
    Conv2d conv2;
  };
  struct Transition {
    Transition(const Scope& scope, std::int64_t in, std::int64_t out);
    Var operator()(std::span<const Var> xs, const Pass& pass) const;

    Segment segment;
    BatchNorm bn;
    Conv2d conv;
  };
  struct Block {
    std::vector<Layer> layers;
    std::optional<Transition> transition;  // but for the last one
  };
  Conv2d conv1_;
  std::optional<BatchNorm> bn1_;  // with the pool, of large images
  std::int64_t channels_;         // behind the blocks
  std::vector<Block> blocks_;
  BatchNorm bn_;
  Linear fc_;
};

}  // namespace ssn
