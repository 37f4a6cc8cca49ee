#include "layers/models/cifar_resnet.h"

namespace ssn {

CifarResNet::Block::Block(const Scope& scope, std::int64_t in, std::int64_t out, std::int64_t stride)
    : segment(scope),
      in(in),
      out(out),
      stride(stride),
      conv1(scope.at("conv1"), in, out, {.stride = stride}),
      bn1(scope.at("bn1"), out),
      conv2(scope.at("conv2"), out, out, {}),
      bn2(scope.at("bn2"), out) {}

Var CifarResNet::Block::operator()(const Var& x, const Pass& pass) const {
  const Var residual = bn2(conv2(bn1(conv1(x), pass, Activation::relu)), pass, Activation::none);
  if (in == out && stride == 1) return add_relu(residual, x);
  const Var subsampled = avg_pool(x, {.kernel = {1, 1}, .stride = {stride, stride}});
  return add_relu(residual, pad_channels(subsampled, (out - in) / 2, out));
}

CifarResNet::CifarResNet(const Scope& scope, int depth, std::int64_t channels, std::int64_t classes,
                         const NetworkSize& size)
    : conv1_(scope.at("conv1"), channels, size.channels(16), {}),
      bn1_(scope.at("bn1"), size.channels(16)),
      blocks_([&] {
        check_usage(depth >= 8 && (depth - 2) % 6 == 0, "resnet",
                    "resnet-{}: the depth must be 6n + 2 (20, 32, 44, 56, 110)", depth);
        std::vector<Block> blocks;
        std::int64_t in = size.channels(16);
        for (int stage = 0; stage < 3; ++stage) {
          const std::int64_t out = size.channels(std::int64_t{16} << stage);
          for (int i = 0; i < size.blocks((depth - 2) / 6); ++i) {
            blocks.emplace_back(scope.at(fmt::format("layer{}.{}", stage + 1, i)), in, out,
                                stage > 0 && i == 0 ? 2 : 1);
            in = out;
          }
        }
        return blocks;
      }()),
      fc_(scope.at("fc"), size.channels(64), classes) {}

Var CifarResNet::forward(const NetworkInput& input, const Pass& pass) const {
  Var h = bn1_(conv1_(pass.input(input.images)), pass, Activation::relu);
  for (const Block& block : blocks_) {
    h = block.segment(pass, {h}, [&block, pass](std::span<const Var> x) { return block(x[0], pass); });
  }
  return fc_(global_avg_pool(h));
}

}  // namespace ssn
