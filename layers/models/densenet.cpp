#include "layers/models/densenet.h"

namespace ssn {

DenseNet::Layer::Layer(const Scope& scope, std::int64_t in, std::int64_t inner, std::int64_t out)
    : segment(scope),
      bn1(scope.at("bn1"), in),
      conv1(scope.at("conv1"), in, inner, {.kernel = 1, .padding = 0}),
      bn2(scope.at("bn2"), inner),
      conv2(scope.at("conv2"), inner, out, {}) {}

Var DenseNet::Layer::operator()(std::span<const Var> xs, const Pass& pass) const {
  return conv2(bn2(conv1(bn1(xs, pass, Activation::relu)), pass, Activation::relu));
}

DenseNet::Transition::Transition(const Scope& scope, std::int64_t in, std::int64_t out)
    : segment(scope), bn(scope.at("bn"), in), conv(scope.at("conv"), in, out, {.kernel = 1, .padding = 0}) {}

Var DenseNet::Transition::operator()(std::span<const Var> xs, const Pass& pass) const {
  return avg_pool(conv(bn(xs, pass, Activation::relu)), {});
}

DenseNet::DenseNet(const Scope& scope, const std::vector<int>& blocks, std::int64_t growth,
                   const NetworkTask& task, const NetworkSize& size)
    : conv1_(scope.at("conv1"), task.channels, size.channels(2 * growth),
             is_large(task) ? Conv2d::Options{.kernel = 7, .stride = 2, .padding = 3} : Conv2d::Options{}),
      bn1_(is_large(task)
               ? std::optional<BatchNorm>(std::in_place, scope.at("bn1"), size.channels(2 * growth))
               : std::nullopt),
      channels_(size.channels(2 * growth)),
      blocks_([&] {
        const std::size_t count = blocks.size();
        const std::int64_t least = std::int64_t{1} << (count - 1);
        check_usage(std::min(task.height, task.width) >= least, "densenet",
                    "the network halves images {} times: they must be at least {}x{}, found {}x{}", count - 1,
                    least, least, task.height, task.width);
        std::vector<Block> result(count);
        for (std::size_t b = 0; b < count; ++b) {
          for (int i = 0; i < size.blocks(blocks[b]); ++i) {
            result[b].layers.emplace_back(scope.at(fmt::format("block{}.{}", b + 1, i)), channels_,
                                          size.channels(4 * growth), size.channels(growth));
            channels_ += size.channels(growth);
          }
          if (b + 1 == count) break;
          const std::int64_t half = std::max<std::int64_t>(1, channels_ / 2);
          result[b].transition.emplace(scope.at(fmt::format("transition{}", b + 1)), channels_, half);
          channels_ = half;
        }
        return result;
      }()),
      bn_(scope.at("bn"), channels_),
      fc_(scope.at("fc"), channels_, task.classes) {}

Var DenseNet::forward(const NetworkInput& input, const Pass& pass) const {
  Var h = conv1_(pass.input(input.images));
  if (bn1_)
    h = max_pool((*bn1_)(h, pass, Activation::relu), {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  std::vector<Var> features = {h};
  for (const Block& block : blocks_) {
    for (const Layer& layer : block.layers)
      features.push_back(
          layer.segment(pass, features, [&layer, pass](std::span<const Var> xs) { return layer(xs, pass); }));
    if (const auto& transition = block.transition)
      features = {transition->segment(
          pass, features, [&transition, pass](std::span<const Var> xs) { return (*transition)(xs, pass); })};
  }
  return fc_(global_avg_pool(bn_(features, pass, Activation::relu)));
}

}  // namespace ssn
