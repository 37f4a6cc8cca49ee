#include "layers/models/efficientnet.h"

#include <cmath>

namespace ssn {
namespace {
constexpr BatchNorm::Options kNorm{.eps = 1e-3, .momentum = 0.01};
constexpr double kDropBlock = 0.2;  // of the block behind the last one

struct Scale {
  double width, depth, dropout;
};
constexpr Scale kScales[] = {{1.0, 1.0, 0.2}, {1.0, 1.1, 0.2}, {1.1, 1.2, 0.3}, {1.2, 1.4, 0.3},
                             {1.4, 1.8, 0.4}, {1.6, 2.2, 0.4}, {1.8, 2.6, 0.5}, {2.0, 3.1, 0.5}};

struct Stage {
  std::int64_t expansion, kernel, stride, channels;
  int blocks;
};
constexpr Stage kStages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                             {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};

const Scale& scale_of(int number) {
  check(number >= 0 && number < static_cast<int>(std::size(kScales)), "efficientnet",
        "there are B0 to B7, not B{}", number);
  return kScales[number];
}

/// To a multiple of 8, and not by more than 10% down.
std::int64_t scaled(std::int64_t channels, double width) {
  const double exact = static_cast<double>(channels) * width;
  const auto rounded = std::max<std::int64_t>(8, static_cast<std::int64_t>(exact + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * exact ? rounded + 8 : rounded;
}
}  // namespace

struct EfficientNet::BlockShape {
  std::string name;
  std::int64_t in, expanded, squeezed, out;
  std::int64_t kernel, stride;
  bool expands, adds;
};

std::vector<EfficientNet::BlockShape> EfficientNet::shapes(double width, double depth,
                                                           const NetworkSize& size) {
  std::vector<BlockShape> shapes;
  std::int64_t in = scaled(32, width);
  int number = 0;
  for (const Stage& stage : kStages) {
    ++number;
    const std::int64_t out = scaled(stage.channels, width);
    const int blocks = size.blocks(static_cast<int>(std::ceil(stage.blocks * depth)));
    for (int i = 0; i < blocks; ++i) {
      const std::int64_t stride = i == 0 ? stage.stride : 1;
      shapes.push_back({.name = fmt::format("stage{}.{}", number, i),
                        .in = size.channels(in),
                        .expanded = size.channels(in * stage.expansion),
                        .squeezed = size.channels(std::max<std::int64_t>(1, in / 4)),
                        .out = size.channels(out),
                        .kernel = stage.kernel,
                        .stride = stride,
                        .expands = stage.expansion > 1,
                        .adds = in == out && stride == 1});
      in = out;
    }
  }
  return shapes;
}

EfficientNet::Block::Block(const Scope& scope, const BlockShape& s, double drop_rate)
    : segment(scope),
      expand([&]() -> std::optional<ConvNorm> {
        if (!s.expands) return {};
        return ConvNorm(scope, "expand", "bn1", s.in, s.expanded, {.kernel = 1, .padding = 0}, kNorm);
      }()),
      depthwise(scope, "depthwise", "bn2", s.expanded, s.expanded,
                {.kernel = s.kernel, .stride = s.stride, .padding = s.kernel / 2, .groups = s.expanded},
                kNorm),
      squeeze(scope.at("squeeze"), s.expanded, s.squeezed, {.kernel = 1, .padding = 0, .bias = true}),
      excite(scope.at("excite"), s.squeezed, s.expanded, {.kernel = 1, .padding = 0, .bias = true}),
      project(scope, "project", "bn3", s.expanded, s.out, {.kernel = 1, .padding = 0}, kNorm) {
  if (s.adds) drop.emplace(scope.at("drop"), drop_rate);
}

Var EfficientNet::Block::operator()(const Var& x, const Pass& pass) const {
  const Var wide = depthwise(expand ? (*expand)(x, pass, Activation::silu) : x, pass, Activation::silu);
  const Var means = global_avg_pool(wide);
  const std::int64_t n = means.shape()[0], channels = means.shape()[1];
  const Var factors = sigmoid(excite(silu(squeeze(reshape(means, {n, 1, 1, channels})))));
  const Var y = project(scale_channels(wide, reshape(factors, {n, channels})), pass, Activation::none);
  return drop ? add(drop->samples(y, pass), x) : y;
}

EfficientNet::EfficientNet(const Scope& scope, int number, const NetworkTask& task, const NetworkSize& size)
    : EfficientNet(scope, shapes(scale_of(number).width, scale_of(number).depth, size),
                   size.channels(scaled(32, scale_of(number).width)),
                   size.channels(scaled(1280, scale_of(number).width)), scale_of(number).dropout, task) {}

EfficientNet::EfficientNet(const Scope& scope, const std::vector<BlockShape>& shapes, std::int64_t stem,
                           std::int64_t head, double dropout, const NetworkTask& task)
    : stem_(scope, "conv1", "bn1", task.channels, stem, {.stride = 2}, kNorm),
      blocks_([&] {
        std::vector<Block> blocks;
        for (const BlockShape& shape : shapes)
          blocks.emplace_back(
              scope.at(shape.name), shape,
              kDropBlock * static_cast<double>(blocks.size()) / static_cast<double>(shapes.size()));
        return blocks;
      }()),
      head_(scope, "conv2", "bn2", shapes.back().out, head, {.kernel = 1, .padding = 0}, kNorm),
      dropout_(scope.at("dropout"), dropout),
      fc_(scope.at("fc"), head, task.classes) {}

Var EfficientNet::forward(const NetworkInput& input, const Pass& pass) const {
  Var h = stem_(pass.input(input.images), pass, Activation::silu);
  for (const Block& block : blocks_) {
    h = block.segment(pass, {h}, [&block, pass](std::span<const Var> x) { return block(x[0], pass); });
  }
  return fc_(dropout_(global_avg_pool(head_(h, pass, Activation::silu)), pass));
}

}  // namespace ssn
