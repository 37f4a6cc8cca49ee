#pragma once
#include <vector>

#include "layers/conv.h"
#include "layers/linear.h"
#include "layers/models/network.h"
#include "layers/norm.h"

namespace ssn {

/// The residual networks for CIFAR (He et al., 2016, section 4.2): a 3×3 convolution to 16 channels, three
/// stages of (depth − 2) / 6 blocks with 16, 32 and 64 channels; shortcuts without parameters (every second
/// pixel, zero channels).
class CifarResNet : public Network {
 public:
  CifarResNet(const Scope& scope, int depth, std::int64_t channels, std::int64_t classes,
              const NetworkSize& size = {});
  Var forward(const NetworkInput& input, const Pass& pass) const override;

 private:
  struct Block {
    Block(const Scope& scope, std::int64_t in, std::int64_t out, std::int64_t stride);
    Var operator()(const Var& x, const Pass& pass) const;

    Segment segment;
    std::int64_t in, out, stride;
    Conv2d conv1;
    BatchNorm bn1;
    Conv2d conv2;
    BatchNorm bn2;
  };
  Conv2d conv1_;
  BatchNorm bn1_;
  std::vector<Block> blocks_;
  Linear fc_;
};

}  // namespace ssn
