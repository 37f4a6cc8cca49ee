#pragma once
#include <optional>
#include <vector>

#include "layers/conv.h"
#include "layers/linear.h"
#include "layers/models/network.h"
#include "layers/norm.h"

namespace ssn {

/// WRN-50-width for ImageNet (Zagoruyko and Komodakis, 2016, section 3; WRN-50-2 as in the code of
/// Shapeshifter Networks): a stem of three 3×3 convolutions and a pool, which halve the image twice; stages
/// of 3, 4, 6 and 3 bottlenecks with 256, 512, 1024 and 2048 channels, a quarter of that times width inside;
/// all but the first stage halve the image, in the 3×3 convolution; mean over the image, classifier. Any
/// image size; made for 224×224. The last norm of a block starts with gain 0: each block starts as its
/// shortcut.
class WideResNet50 : public Network {
 public:
  WideResNet50(const Scope& scope, int width, std::int64_t channels, std::int64_t classes,
               const NetworkSize& size = {});
  Var forward(const NetworkInput& input, const Pass& pass) const override;

 private:
  struct ConvNorm {
    ConvNorm(const Scope& scope, std::string_view conv, std::string_view bn, std::int64_t in,
             std::int64_t out, const Conv2d::Options& options, double initial_gain = 1);
    Var operator()(const Var& x, const Pass& pass, bool relu) const { return bn(conv(x), pass, relu); }

    Conv2d conv;
    BatchNorm bn;
  };
  struct Block {
    Block(const Scope& scope, std::int64_t in, std::int64_t inner, std::int64_t out, std::int64_t stride);
    Var operator()(const Var& x, const Pass& pass) const;

    Segment segment;
    std::optional<ConvNorm> shortcut;  // 1×1, where the shape changes
    ConvNorm reduce, filter, expand;   // 1×1, 3×3, 1×1
  };
  ConvNorm stem1_, stem2_, stem3_;
  std::vector<Block> blocks_;
  Linear fc_;
};

}  // namespace ssn
