#pragma once
#include <optional>
#include <vector>

#include "layers/conv.h"
#include "layers/linear.h"
#include "layers/models/network.h"
#include "layers/norm.h"

namespace ssn {

/// Wide residual network WRN-depth-width (Zagoruyko and Komodakis, 2016): a 3×3 convolution to 16 channels,
/// three stages of (depth − 4) / 6 pre-activation blocks with 16, 32, 64 times width channels, the second and
/// third halving the image; norm, ReLU, mean over the image, classifier. 3×3 inputs and up.
class WideResNet : public Network {
 public:
  WideResNet(const Scope& scope, int depth, int width, std::int64_t channels, std::int64_t classes,
             const NetworkSize& size = {});
  Var forward(const NetworkInput& input, const Pass& pass) const override;

 private:
  struct Block {
    Block(const Scope& scope, std::int64_t in, std::int64_t out, std::int64_t stride);
    Var operator()(const Var& x, const Pass& pass) const;

    Segment segment;
    BatchNorm bn1;
    Conv2d conv1;
    BatchNorm bn2;
    Conv2d conv2;
    std::optional<Conv2d> shortcut;  // 1×1, where the shape changes; of the activated input
  };
  Conv2d conv1_;
  std::vector<Block> blocks_;
  BatchNorm bn_;
  Linear fc_;
};

}  // namespace ssn
