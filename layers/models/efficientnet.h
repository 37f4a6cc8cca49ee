#pragma once
#include <optional>
#include <vector>

#include "layers/conv_norm.h"
#include "layers/dropout.h"
#include "layers/linear.h"
#include "layers/models/network.h"

namespace ssn {

/// EfficientNet-B0 to B7 (Tan and Le, 2019, tables 1 and section 3): inverted bottlenecks with depthwise
/// convolutions, squeeze and excitation, and SiLU; B0 scaled to more channels (rounded to multiples of 8) and
/// blocks (rounded up). While training, whole blocks are dropped, the last ones with probability up to 0.2,
/// and of the classifier's inputs 0.2 to 0.5. Norms have eps 0.001 and momentum 0.01, as published (so has
/// torchvision in B5 to B7). The image is halved five times, whatever its size; made for 224×224 (B0) to
/// 600×600 (B7).
class EfficientNet : public Network {
 public:
  EfficientNet(const Scope& scope, int number, const NetworkTask& task, const NetworkSize& size = {});
  Var forward(const NetworkInput& input, const Pass& pass) const override;

 private:
  struct BlockShape;
  struct Block {
    Block(const Scope& scope, const BlockShape& shape, double drop_rate);
    Var operator()(const Var& x, const Pass& pass) const;

    Segment segment;
    std::optional<ConvNorm> expand;
    ConvNorm depthwise;
    Conv2d squeeze, excite;  // of the channels' means
    ConvNorm project;
    std::optional<Dropout> drop;  // of what is added to x; none: the block's result is not added
  };
  static std::vector<BlockShape> shapes(double width, double depth, const NetworkSize& size);
  EfficientNet(const Scope& scope, const std::vector<BlockShape>& blocks, std::int64_t stem,
               std::int64_t head, double dropout, const NetworkTask& task);

  ConvNorm stem_;
  std::vector<Block> blocks_;
  ConvNorm head_;
  Dropout dropout_;
  Linear fc_;
};

}  // namespace ssn
