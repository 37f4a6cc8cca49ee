#include "layers/models/wrn.h"

namespace ssn {

WideResNet::Block::Block(const Scope& scope, std::int64_t in, std::int64_t out, std::int64_t stride)
    : segment(scope),
      bn1(scope.at("bn1"), in),
      conv1(scope.at("conv1"), in, out, {.stride = stride}),
      bn2(scope.at("bn2"), out),
      conv2(scope.at("conv2"), out, out, {}) {
  if (in != out || stride != 1)
    shortcut.emplace(scope.at("shortcut"), in, out,
                     Conv2d::Options{.kernel = 1, .stride = stride, .padding = 0});
}

Var WideResNet::Block::operator()(const Var& x, const Pass& pass) const {
  const Var active = bn1(x, pass, Activation::relu);
  const Var residual = conv2(bn2(conv1(active), pass, Activation::relu));
  return add(residual, shortcut ? (*shortcut)(active) : x);
}

WideResNet::WideResNet(const Scope& scope, int depth, int width, std::int64_t channels, std::int64_t classes,
                       const NetworkSize& size)
    : conv1_(scope.at("conv1"), channels, size.channels(16), {}),
      blocks_([&] {
        check_usage(depth >= 10 && (depth - 4) % 6 == 0 && width >= 1, "wrn",
                    "wrn-{}-{}: the depth must be 6n + 4 (10, 16, 22, 28, ...), the width at least 1", depth,
                    width);
        std::vector<Block> blocks;
        std::int64_t in = size.channels(16);
        for (int stage = 0; stage < 3; ++stage) {
          const std::int64_t out = size.channels((std::int64_t{16} << stage) * width);
          for (int i = 0; i < size.blocks((depth - 4) / 6); ++i) {
            blocks.emplace_back(scope.at(fmt::format("block{}.layer.{}", stage + 1, i)), in, out,
                                stage > 0 && i == 0 ? 2 : 1);
            in = out;
          }
        }
        return blocks;
      }()),
      bn_(scope.at("bn"), size.channels(std::int64_t{64} * width)),
      fc_(scope.at("fc"), size.channels(std::int64_t{64} * width), classes) {}

Var WideResNet::forward(const NetworkInput& input, const Pass& pass) const {
  Var h = conv1_(pass.input(input.images));
  for (const Block& block : blocks_) {
    h = block.segment(pass, {h}, [&block, pass](std::span<const Var> x) { return block(x[0], pass); });
  }
  return fc_(global_avg_pool(bn_(h, pass, Activation::relu)));
}

}  // namespace ssn
