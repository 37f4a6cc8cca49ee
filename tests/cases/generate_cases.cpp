#include <numeric>

#include "tests/cases/bilinear.h"

namespace ssn::test {
namespace {

using Method = WeightRule::Method;

/// A layer of a group, and which inputs hold its coefficients (0: none; theta is input 0): alpha, a mask, or
/// phi, for which input `projection` holds W and the next one b.
struct Layer {
  WeightRule rule;
  std::size_t coefficients;
  std::size_t projection = 0;
  std::int64_t embedding = 0;
  WeightFormat format = {};

  Shape shape() const { return shape_in(format, rule.shape); }
  Layer channels_last() const {
    Layer l = *this;
    l.format.channels_last = true;
    return l;
  }
  Layer with(double gain) const {
    Layer l = *this;
    l.rule.gain = gain;
    return l;
  }
  Layer softmax() const {
    Layer l = *this;
    l.rule.softmax = true;
    return l;
  }
  /// Templates of rows x cols, resized to a matrix of to_rows.
  Layer resized(std::int64_t rows, std::int64_t cols, std::int64_t to_rows) const {
    Layer l = *this;
    l.rule.resize = {rows, cols, to_rows, l.rule.shape.size() / to_rows};
    return l;
  }
  Layer projected(std::size_t input, std::int64_t size) const {
    Layer l = *this;
    l.projection = input, l.embedding = size;
    return l;
  }
};
Layer templates(const Shape& shape, std::vector<std::int64_t> offsets, std::size_t coefficients) {
  return {{Method::templates, shape, std::move(offsets)}, coefficients};
}
Layer exact(const Shape& shape, std::int64_t offset) {
  return {{Method::exact, shape, {offset}}, 0};
}
Layer tiles(const Shape& shape, std::int64_t window, std::size_t coefficients, std::int64_t tile = 0) {
  return {{Method::tiles, shape, {}, window, tile}, coefficients};
}

/// A layer's coefficients from their definitions; of templates.
Doubles alpha_of(const Layer& l, std::span<const Doubles> in) {
  const std::size_t count = l.rule.offsets.size();
  if (l.rule.method == Method::exact) return {1.0};
  if (l.coefficients == 0) return Doubles(count, 1 / static_cast<double>(count));
  Doubles z = in[l.coefficients];
  if (l.projection) {
    const auto e = static_cast<std::size_t>(l.embedding);
    z.assign(count, 0);
    for (std::size_t k = 0; k < count; ++k) {
      z[k] = in[l.projection + 1].at(k);
      for (std::size_t i = 0; i < e; ++i) z[k] += in[l.projection].at(k * e + i) * in[l.coefficients].at(i);
    }
  }
  if (!l.rule.softmax) return z;
  const double most = *std::max_element(z.begin(), z.end());
  double sum = 0;
  for (double& v : z) sum += v = std::exp(v - most);
  for (double& v : z) v /= sum;
  return z;
}

/// Element i of a tiled weight.
double tiled(std::int64_t i, std::int64_t group_size, const Layer& l, std::span<const Doubles> in) {
  const std::int64_t length = l.rule.tile ? l.rule.tile : group_size, tile = i / length, p = i % length;
  const auto place = static_cast<std::size_t>((tile - 1) * l.rule.window + p % l.rule.window);
  return in[0].at(static_cast<std::size_t>(p)) * (tile && l.coefficients ? in[l.coefficients].at(place) : 1);
}

/// (o, i, kh, kw) to (o, kh, kw, i).
Doubles channels_last(const Shape& shape, const Doubles& w) {
  Doubles all;
  for (std::int64_t o = 0; o < shape[0]; ++o)
    for (std::int64_t tap = 0; tap < shape[2] * shape[3]; ++tap)
      for (std::int64_t c = 0; c < shape[1]; ++c)
        all.push_back(w.at(static_cast<std::size_t>((o * shape[1] + c) * shape[2] * shape[3] + tap)));
  return all;
}

/// The weights of the layers one after another, from their definitions (kernels/generate.h).
Doubles generated(std::int64_t group_size, const std::vector<Layer>& layers, std::span<const Doubles> in) {
  Doubles all;
  for (const Layer& l : layers) {
    const auto& resize = l.rule.resize;
    const std::int64_t n = resize ? resize->rows * resize->cols : l.rule.shape.size();
    const Doubles alpha = l.rule.method == Method::tiles ? Doubles() : alpha_of(l, in);
    Doubles w;
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < alpha.size(); ++k)
        sum += alpha[k] * in[0].at(static_cast<std::size_t>(l.rule.offsets[k] + i));
      w.push_back(l.rule.gain * (l.rule.method == Method::tiles ? tiled(i, group_size, l, in) : sum));
    }
    if (resize) w = bilinear(w, {1, resize->rows, resize->cols, 1}, resize->to_rows, resize->to_cols);
    if (l.format.channels_last) w = channels_last(l.rule.shape, w);
    all.insert(all.end(), w.begin(), w.end());
  }
  return all;
}

std::vector<WeightRecipe> recipes_of(const std::vector<Layer>& layers, std::span<const Var> in) {
  std::vector<WeightRecipe> recipes;
  for (const Layer& l : layers) {
    WeightRecipe r{l.rule, in[0]};
    if (l.coefficients) r.coefficients = in[l.coefficients];
    if (l.projection) r.projection = in[l.projection], r.projection_bias = in[l.projection + 1];
    r.format = l.format;
    recipes.push_back(std::move(r));
  }
  return recipes;
}

/// All layers in one call, their weights one after another.
Var generated_list(const std::vector<Layer>& layers, std::span<const Var> in) {
  const auto recipes = recipes_of(layers, in);
  const std::vector<Tensor> weights = generate(recipes);
  const auto total = std::accumulate(weights.begin(), weights.end(), std::int64_t{0},
                                     [](std::int64_t n, const Tensor& w) { return n + w.size(); });
  const Tensor all = Tensor::empty({total}, in[0].dtype(), in[0].device());
  std::int64_t at = 0;
  for (const Tensor& w : weights) {
    all.slice(at, w.shape()).copy_from(w);
    at += w.size();
  }
  return Var::result(all, {in.begin(), in.end()}, [layers](const Tensor& gy, std::span<const Var> inputs) {
    std::vector<Tensor> grads;
    std::int64_t from = 0;
    for (const Layer& l : layers) {
      grads.push_back(gy.slice(from, l.shape()));
      from += l.rule.shape.size();
    }
    generate_backward(recipes_of(layers, inputs), grads);
  });
}

OpCase generate_case(const std::string& name, std::int64_t group_size, const std::vector<Layer>& layers,
                     bool list) {
  std::vector<Input> inputs{{.shape = {group_size}}};
  for (const Layer& l : layers) {
    if (l.coefficients == 0) continue;
    inputs.resize(std::max(inputs.size(), l.coefficients + 1));
    const auto templates = static_cast<std::int64_t>(l.rule.offsets.size());
    if (l.projection) {
      inputs.resize(std::max(inputs.size(), l.projection + 2));
      Shape& w = inputs[l.projection].shape;  // a shared one has as many rows as the most templates need
      const std::int64_t rows = std::max(templates, w.rank() == 2 ? w[0] : 0);
      w = {rows, l.embedding};
      inputs[l.projection + 1].shape = {rows};
    }
    Shape& shape = inputs[l.coefficients].shape;
    const std::int64_t tile = l.rule.tile ? l.rule.tile : group_size;
    const std::int64_t masks = (l.rule.shape.size() + tile - 1) / tile - 1;
    if (l.rule.method == Method::templates)
      shape = {l.projection ? l.embedding : templates};
    else if (shape.rank() < 2 ||
             shape[0] < masks)  // a shared one has as many masks as the largest layer needs
      shape = {std::max<std::int64_t>(masks, 0), l.rule.window};
  }
  return {.name = (list ? "generate_list_" : "generated_weight_") + name,
          .inputs = inputs,
          .f =
              [=](std::span<const Var> in) {
                return list ? generated_list(layers, in) : generated_weight(recipes_of(layers, in)[0]);
              },
          .reference = [=](std::span<const Doubles> in) { return generated(group_size, layers, in); },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

/// K templates at multiples of n, from `first` on.
std::vector<std::int64_t> slots(int count, std::int64_t n, std::int64_t first = 0) {
  std::vector<std::int64_t> offsets;
  for (int k = 0; k < count; ++k) offsets.push_back(first + k * n);
  return offsets;
}

void add_single_layers(std::vector<OpCase>& cases) {
  const auto add = [&](const std::string& name, std::int64_t group_size, const Layer& layer) {
    cases.push_back(generate_case(name, group_size, {layer}, false));
  };
  for (int k : {1, 2, 3, 4, 5, 6, 7, 8, 16})
    add(fmt::format("k{}", k), 53 * k + 7, templates({53}, slots(k, 53, 5), 1));
  for (std::int64_t n : {1, 2, 31, 33, 127, 129})
    add(fmt::format("n{}", n), 3 * n + 2, templates({n}, {2, 2 + 2 * n, 1}, 1));
  add("conv", 4 * 5 * 3 * 3 * 3 + 1, templates({5, 3, 3, 3}, slots(4, 135), 1));
  add("all_in_one_place", 71, templates({64}, {3, 3, 3, 3, 3}, 1));
  add("overlapping", 150, templates({97}, {40, 7, 8, 53, 0}, 1));
  add("long", 3 * 4111 + 5, templates({4111}, {8224, 1, 4113}, 1));
  add("long_aligned", 4 * 4608, templates({64, 8, 3, 3}, {9216, 0, 13824}, 1));
  add("long_overlapping", 6203, templates({3, 1999}, {206, 0, 133, 11}, 1));
  add("exact", 41, exact({2, 3, 5}, 7));
  add("exact_long", 6011, exact({5003}, 1001));
  for (std::int64_t window : {1, 2, 3, 9, 31, 32, 33, 61, 64})
    add(fmt::format("window{}", window), 61, tiles({7, 29}, window, 1));
  add("one_tile", 61, tiles({3, 17}, 9, 1));
  add("exact_tiles", 30, tiles({4, 30}, 7, 1));
  add("theta_of_one", 1, tiles({5}, 3, 1));
  for (std::int64_t window : {9, 100, 2047, 2049, 4500})
    add(fmt::format("long_window{}", window), 4243, tiles({3, 4001}, window, 1));
  add("empty", 5, templates({0, 3}, {0, 5}, 1));
}

void add_variants(std::vector<OpCase>& cases) {
  const auto add = [&](const std::string& name, std::int64_t group_size, const Layer& layer) {
    cases.push_back(generate_case(name, group_size, {layer}, false));
  };
  add("mean", 211, templates({3, 17}, {5, 60, 2}, 0));
  add("gain", 331, templates({61}, slots(5, 61), 1).with(0.7));
  add("gain_long", 3 * 4111 + 5, templates({4111}, {8224, 1, 4113}, 1).with(-1.3));
  add("gain_exact", 77, exact({2, 3, 5}, 7).with(2.5));
  add("gain_tiles", 61, tiles({7, 29}, 9, 1).with(0.3));
  add("gain_long_window", 4243, tiles({3, 4001}, 2049, 1).with(0.3));
  add("repeat", 61, tiles({7, 29}, 9, 0));
  add("repeat_gain", 4243, tiles({3, 4001}, 9, 0).with(1.7));
  add("tile_cut", 61, tiles({7, 29}, 9, 1, 54));
  add("tile_cut_long", 5000, tiles({3, 4001}, 9, 1, 4239));
  add("repeat_cut", 47, tiles({4, 36}, 9, 0, 45));
  add("softmax", 211, templates({3, 17}, {5, 60, 2}, 1).softmax());
  add("projected", 211, templates({3, 17}, {5, 60, 2, 11}, 1).projected(2, 7));
  add("projected_softmax", 211, templates({3, 17}, {5, 60, 2, 11}, 1).projected(2, 24).softmax().with(0.6));
  add("projected_one", 71, templates({31}, {5}, 1).projected(2, 3));
  add("resized", 190, exact({5, 33}, 7).resized(3, 13, 5));
  add("resized_down", 190, exact({4, 3}, 0).resized(11, 17, 4));
  add("resized_row", 50, exact({4, 36}, 0).resized(1, 50, 1));
  add("resized_gain", 90, exact({5, 9}, 3).resized(4, 2, 5).with(0.4));
  add("resized_templates", 301, templates({6, 4, 3, 3}, slots(4, 75), 1).resized(3, 25, 6));
  add("resized_projected", 301,
      templates({7, 6}, slots(4, 75), 1).resized(9, 8, 7).projected(2, 5).softmax());
}

void add_lists(std::vector<OpCase>& cases) {
  const auto add = [&](const std::string& name, std::int64_t group_size, const std::vector<Layer>& layers) {
    cases.push_back(generate_case(name, group_size, layers, true));
  };
  add("templates", 997,
      {templates({3, 41}, slots(8, 123), 1), templates({17}, {0, 900, 333}, 2),
       templates({2, 7, 3, 3}, slots(7, 126, 100), 3), templates({499}, {1, 498}, 4)});
  add("shared_masks", 89, {tiles({3, 5, 3, 3}, 9, 1), tiles({400}, 9, 1), tiles({90}, 9, 1)});
  add("all_methods", 131,
      {tiles({500}, 9, 1), templates({31}, slots(4, 31), 2), exact({3, 43}, 2), tiles({263}, 9, 1),
       exact({1}, 130), templates({65}, {66, 0}, 3), templates({129}, {1}, 4), tiles({140}, 4, 5)});
  add("shared_alpha", 211, {templates({50}, slots(3, 70), 1), templates({70}, {2, 101, 7}, 1)});
  add("common_period", 8 * 4100 + 5,
      {templates({4100}, slots(3, 4100, 4100), 1), templates({8200}, slots(2, 8200, 8200), 2),
       exact({7}, 4098), templates({4100}, slots(5, 4100), 3), templates({12300}, {0, 12300}, 4)});
  add("no_common_period", 3 * 4421,
      {templates({4421}, slots(2, 4421, 13), 1), templates({4211}, slots(3, 4211), 2),
       templates({4337}, {8000, 17}, 3)});
  add("tiles_and_period", 4219,
      {tiles({3 * 4219 - 2}, 9, 1), templates({2, 2100}, {4}, 2), tiles({4220}, 9, 1)});
  std::vector<Layer> many;  // of so many rows of theta that a block's columns fill its shared memory
  for (std::int64_t i = 0; i < 45; ++i)
    many.push_back(templates({8, 17}, slots(5, 136, 4 * i % 176 * 136), 1));
  add("many_rows", 180 * 136, many);
  add("none", 5, {});
  add("shared_projections", 331,
      {templates({53}, slots(4, 53), 1).projected(2, 7), templates({61}, slots(3, 61, 9), 4).projected(2, 7),
       templates({47}, slots(5, 47), 5).projected(6, 3).with(0.8),
       templates({2, 20}, slots(4, 40, 3), 8).projected(2, 7)});
  add("everything", 131,
      {tiles({500}, 9, 1, 126), exact({9, 5}, 3).resized(4, 7, 9), templates({31}, slots(4, 31), 2).with(1.4),
       exact({3, 43}, 2), templates({41}, slots(3, 41), 0), tiles({263}, 9, 0),
       templates({5, 12}, slots(3, 42), 3).resized(6, 7, 5).projected(4, 6), exact({21}, 100).with(0.5)});
}

/// With the channels last: one layer, and lists with layers in theta's order between.
void add_channels_last(std::vector<OpCase>& cases) {
  const auto add = [&](const std::string& name, std::int64_t group_size, const Layer& layer) {
    cases.push_back(generate_case("last_" + name, group_size, {layer.channels_last()}, false));
  };
  const auto some = [](const Shape& shape, std::vector<std::int64_t> offsets) {
    return templates(shape, std::move(offsets), 1);
  };
  add("whole_rows", 2304, some({8, 16, 3, 3}, {0, 1152, 0, 1152}));
  add("whole_rows_odd", 2400, some({8, 15, 2, 5}, {1200, 0, 1200}));
  add("wide_rows", 2 * 9216, some({32, 32, 3, 3}, {0, 9216, 0, 9216, 0}));
  add("anywhere", 2700, some({6, 24, 3, 3}, {3, 1301, 40}));
  add("odd", 331, some({5, 7, 3, 3}, {1, 0, 16}));
  add("filters_of_one", 97, some({1, 12, 4, 2}, {1, 0}));
  add("stem", 1729, some({64, 3, 3, 3}, {1, 0}));
  add("one_tap", 97, some({8, 12, 1, 1}, {1, 0}));
  add("one_channel", 97, some({8, 1, 3, 4}, {1, 0}));
  add("large_window", 4400, some({2, 4, 17, 31}, {1, 107}));
  add("exact", 5200, exact({9, 64, 3, 3}, 7));
  add("exact_gain", 1200, exact({8, 16, 3, 3}, 16).with(1.5));
  add("view", 100, exact({8, 12, 1, 1}, 0));
  add("tiles", 1008, tiles({16, 32, 3, 3}, 9, 1));
  add("tiles_cut", 1000, tiles({8, 16, 3, 3}, 9, 1, 999));
  add("tiles_long_window", 4243, tiles({12, 40, 3, 3}, 2049, 1).with(0.3));
  add("repeat", 101, tiles({7, 29, 3, 1}, 9, 0));
  add("resized", 190, exact({5, 6, 2, 3}, 7).resized(3, 13, 5));
  add("empty", 5, some({0, 3, 3, 3}, {0, 5}));
  const Layer plain = templates({8, 16, 3, 3}, slots(4, 1152, 1152), 2);
  cases.push_back(generate_case(
      "last_rows", 6 * 1152,
      {some({8, 16, 3, 3}, slots(5, 1152)).channels_last(), plain,
       templates({16, 8, 6, 3}, slots(3, 2304), 3).channels_last(),
       templates({4, 18, 4, 4}, {1152, 0}, 4).channels_last(), exact({3, 8, 3, 3}, 5).channels_last()},
      true));
  cases.push_back(generate_case("last_and_masks", 5 * 1152,
                                {tiles({64, 16, 3, 3}, 9, 1).channels_last(), plain.with(0.5),
                                 templates({8, 16, 3, 3}, slots(4, 1152), 3).channels_last(),
                                 tiles({32, 16, 3, 3}, 9, 1), tiles({33, 16, 3, 3}, 9, 1).channels_last()},
                                true));
}

}  // namespace

std::vector<OpCase> generate_cases() {
  std::vector<OpCase> cases;
  add_single_layers(cases);
  add_variants(cases);
  add_lists(cases);
  add_channels_last(cases);
  return cases;
}

}  // namespace ssn::test
