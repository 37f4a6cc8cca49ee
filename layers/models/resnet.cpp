#include "layers/models/resnet.h"

namespace ssn {
namespace {
constexpr Conv2d::Options point(std::int64_t stride) {
  return {.kernel = 1, .stride = stride, .padding = 0};
}
constexpr BatchNorm::Options kFromZero{.initial_gain = 0};
}  // namespace

ResNet::Block::Block(const Scope& scope, bool bottleneck, std::int64_t in, std::int64_t inner,
                     std::int64_t out, std::int64_t stride)
    : segment(scope), shortcut([&]() -> std::optional<ConvNorm> {
        if (in == out && stride == 1) return {};
        return ConvNorm(scope, "shortcut", "shortcut_bn", in, out, point(stride));
      }()) {
  if (bottleneck) {
    layers.emplace_back(scope, "conv1", "bn1", in, inner, point(1));
    layers.emplace_back(scope, "conv2", "bn2", inner, inner, Conv2d::Options{.stride = stride});
    layers.emplace_back(scope, "conv3", "bn3", inner, out, point(1), kFromZero);
  } else {
    layers.emplace_back(scope, "conv1", "bn1", in, out, Conv2d::Options{.stride = stride});
    layers.emplace_back(scope, "conv2", "bn2", out, out, Conv2d::Options{}, kFromZero);
  }
}

Var ResNet::Block::operator()(const Var& x, const Pass& pass) const {
  Var residual = x;
  for (const ConvNorm& layer : layers)
    residual = layer(residual, pass, &layer == &layers.back() ? Activation::none : Activation::relu);
  return add_relu(residual, shortcut ? (*shortcut)(x, pass, Activation::none) : x);
}

std::vector<ConvNorm> ResNet::make_stem(const Scope& scope, bool deep, const NetworkTask& task,
                                        const NetworkSize& size) {
  const std::int64_t half = size.channels(32), out = size.channels(64);
  std::vector<ConvNorm> stem;
  if (deep) {
    const Scope at = scope.at("stem");
    stem.emplace_back(at, "conv1", "bn1", task.channels, half, Conv2d::Options{.stride = 2});
    stem.emplace_back(at, "conv2", "bn2", half, half, Conv2d::Options{});
    stem.emplace_back(at, "conv3", "bn3", half, out, Conv2d::Options{});
  } else {
    constexpr Conv2d::Options halving{.kernel = 7, .stride = 2, .padding = 3};
    stem.emplace_back(scope, "conv1", "bn1", task.channels, out,
                      is_large(task) ? halving : Conv2d::Options{});
  }
  return stem;
}

ResNet::ResNet(const Scope& scope, const Architecture& a, const NetworkTask& task, const NetworkSize& size)
    : stem_(make_stem(scope, a.deep_stem, task, size)),
      pool_(a.deep_stem || is_large(task)),
      blocks_([&] {
        std::vector<Block> blocks;
        std::int64_t in = size.channels(64);
        for (int stage = 0; stage < 4; ++stage) {
          const std::int64_t channels = std::int64_t{64} << stage;
          const std::int64_t out = size.channels(a.bottleneck ? 4 * channels : channels);
          for (int i = 0; i < size.blocks(a.blocks[stage]); ++i) {
            blocks.emplace_back(scope.at(fmt::format("layer{}.{}", stage + 1, i)), a.bottleneck, in,
                                size.channels(channels * a.width), out, stage > 0 && i == 0 ? 2 : 1);
            in = out;
          }
        }
        return blocks;
      }()),
      fc_(scope.at("fc"), size.channels(a.bottleneck ? 2048 : 512), task.classes) {}

Var ResNet::forward(const NetworkInput& input, const Pass& pass) const {
  Var h = pass.input(input.images);
  for (const ConvNorm& layer : stem_) h = layer(h, pass, Activation::relu);
  if (pool_) h = max_pool(h, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  for (const Block& block : blocks_) {
    h = block.segment(pass, {h}, [&block, pass](std::span<const Var> x) { return block(x[0], pass); });
  }
  return fc_(global_avg_pool(h));
}

}  // namespace ssn
