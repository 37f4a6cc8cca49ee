#include "layers/models/wrn50.h"

namespace ssn {
namespace {
constexpr Conv2d::Options point(std::int64_t stride) {
  return {.kernel = 1, .stride = stride, .padding = 0};
}
}  // namespace

WideResNet50::ConvNorm::ConvNorm(const Scope& scope, std::string_view conv, std::string_view bn,
                                 std::int64_t in, std::int64_t out, const Conv2d::Options& options,
                                 double initial_gain)
    : conv(scope.at(conv), in, out, options), bn(scope.at(bn), out, initial_gain) {}

WideResNet50::Block::Block(const Scope& scope, std::int64_t in, std::int64_t inner, std::int64_t out,
                           std::int64_t stride)
    : segment(scope),
      shortcut([&]() -> std::optional<ConvNorm> {
        if (in == out && stride == 1) return {};
        return ConvNorm(scope, "shortcut", "shortcut_bn", in, out, point(stride));
      }()),
      reduce(scope, "conv1", "bn1", in, inner, point(1)),
      filter(scope, "conv2", "bn2", inner, inner, {.stride = stride}),
      expand(scope, "conv3", "bn3", inner, out, point(1), 0) {}

Var WideResNet50::Block::operator()(const Var& x, const Pass& pass) const {
  const Var residual = expand(filter(reduce(x, pass, true), pass, true), pass, false);
  return relu(add(residual, shortcut ? (*shortcut)(x, pass, false) : x));
}

WideResNet50::WideResNet50(const Scope& scope, int width, std::int64_t channels, std::int64_t classes,
                           const NetworkSize& size)
    : stem1_(scope.at("stem"), "conv1", "bn1", channels, size.channels(32), {.stride = 2}),
      stem2_(scope.at("stem"), "conv2", "bn2", size.channels(32), size.channels(32), {}),
      stem3_(scope.at("stem"), "conv3", "bn3", size.channels(32), size.channels(64), {}),
      blocks_([&] {
        constexpr int counts[] = {3, 4, 6, 3};
        std::vector<Block> blocks;
        std::int64_t in = size.channels(64);
        for (int stage = 0; stage < 4; ++stage) {
          const std::int64_t inner = size.channels((std::int64_t{64} << stage) * width);
          const std::int64_t out = size.channels(std::int64_t{256} << stage);
          for (int i = 0; i < size.blocks(counts[stage]); ++i) {
            blocks.emplace_back(scope.at(fmt::format("layer{}.{}", stage + 1, i)), in, inner, out,
                                stage > 0 && i == 0 ? 2 : 1);
            in = out;
          }
        }
        return blocks;
      }()),
      fc_(scope.at("fc"), size.channels(2048), classes) {}

Var WideResNet50::forward(const NetworkInput& input, const Pass& pass) const {
  Var h = stem3_(stem2_(stem1_(Var::constant(input.images), pass, true), pass, true), pass, true);
  h = max_pool(h, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  for (const Block& block : blocks_) {
    h = block.segment(pass, {h}, [&block, pass](std::span<const Var> x) { return block(x[0], pass); });
  }
  return fc_(global_avg_pool(h));
}

}  // namespace ssn
