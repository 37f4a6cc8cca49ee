#pragma once
#include <optional>
#include <vector>

#include "layers/conv_norm.h"
#include "layers/linear.h"
#include "layers/models/network.h"

namespace ssn {

/// The residual networks for ImageNet (He et al., 2016, section 4.1): four stages of blocks, all but the
/// first of which halve the image; mean over the image, classifier. A basic block has two 3×3 convolutions of
/// 64 to 512 channels; a bottleneck 1×1, 3×3 and 1×1 (the stride in the 3×3, as torchvision has it), of four
/// times the channels outside and `width` times within (Zagoruyko and Komodakis, 2016: WRN-50-2). Shortcuts
/// are 1×1 convolutions where the shape changes. The last norm of a block starts with gain 0: each block
/// starts as its shortcut. Any image size; see kLargeImage for the stem.
class ResNet : public Network {
 public:
  struct Architecture {
    int blocks[4];
    bool bottleneck = false;
    std::int64_t width = 1;
    bool deep_stem = false;  // three 3×3 convolutions, the first of stride 2, and the pool, for any image
  };
  ResNet(const Scope& scope, const Architecture& architecture, const NetworkTask& task,
         const NetworkSize& size = {});
  Var forward(const NetworkInput& input, const Pass& pass) const override;

 private:
  struct Block {
    Block(const Scope& scope, bool bottleneck, std::int64_t in, std::int64_t inner, std::int64_t out,
          std::int64_t stride);
    Var operator()(const Var& x, const Pass& pass) const;

    Segment segment;
    std::optional<ConvNorm> shortcut;  // 1×1, where the shape changes
    std::vector<ConvNorm> layers;
  };
  static std::vector<ConvNorm> make_stem(const Scope& scope, bool deep, const NetworkTask& task,
                                         const NetworkSize& size);
  std::vector<ConvNorm> stem_;
  bool pool_;
  std::vector<Block> blocks_;
  Linear fc_;
};

}  // namespace ssn
