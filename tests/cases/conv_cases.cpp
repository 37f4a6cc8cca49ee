#include <algorithm>
#include <iterator>

#include "tests/op_case.h"

namespace ssn::test {
namespace {

/// Every output element from its definition: a sum over channels of the group and taps inside the image. `w`:
/// (o, c/groups, kh, kw), whatever the weight's order.
Doubles convolution(const Shape& x, const Shape& w, const ConvOptions& o, const Doubles& xv,
                    const Doubles& wv) {
  const auto weight_at = [&](std::int64_t out, std::int64_t c, std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>(o.channels_last ? ((out * w[2] + i) * w[3] + j) * w[1] + c
                                                    : ((out * w[1] + c) * w[2] + i) * w[3] + j);
  };
  const std::int64_t window_h = (w[2] - 1) * o.dilation[0] + 1, window_w = (w[3] - 1) * o.dilation[1] + 1;
  Doubles y;
  for (std::int64_t n = 0; n < x[0]; ++n)
    for (std::int64_t top = -o.padding[0]; top + window_h <= x[1] + o.padding[0]; top += o.stride[0])
      for (std::int64_t left = -o.padding[1]; left + window_w <= x[2] + o.padding[1]; left += o.stride[1])
        for (std::int64_t out = 0; out < w[0]; ++out) {
          const std::int64_t first = out / (w[0] / o.groups) * w[1];  // the first channel of out's group
          double sum = 0;
          for (std::int64_t c = 0; c < w[1]; ++c)
            for (std::int64_t i = 0; i < w[2]; ++i)
              for (std::int64_t j = 0; j < w[3]; ++j) {
                const std::int64_t row = top + i * o.dilation[0], col = left + j * o.dilation[1];
                if (row < 0 || row >= x[1] || col < 0 || col >= x[2]) continue;
                sum += xv.at(static_cast<std::size_t>(((n * x[1] + row) * x[2] + col) * x[3] + first + c)) *
                       wv.at(weight_at(out, c, i, j));
              }
          y.push_back(sum);
        }
  return y;
}

struct Row {
  std::string name;
  Shape x, w;
  ConvOptions options = {};
  bool x_grad = true, w_grad = true;
};

OpCase conv_case(const Row& r) {
  return {.name = "conv_" + r.name,
          .inputs = {{.shape = r.x, .grad = r.x_grad},
                     {.shape = shape_in({.channels_last = r.options.channels_last}, r.w), .grad = r.w_grad}},
          .f = [o = r.options](std::span<const Var> in) { return conv2d(in[0], in[1], o); },
          .reference =
              [r](std::span<const Doubles> in) { return convolution(r.x, r.w, r.options, in[0], in[1]); },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread},
          .thread_invariant = r.x[3] == r.options.groups && r.w[0] == r.options.groups};
}

/// Of each channel alone.
std::vector<Row> depthwise_rows() {
  return {
      {"depthwise", {2, 6, 7, 5}, {5, 1, 3, 3}, {.padding = {1, 1}, .groups = 5}},
      {"depthwise_wide", {2, 5, 6, 33}, {33, 1, 5, 3}, {.stride = {2, 1}, .padding = {2, 1}, .groups = 33}},
      {"depthwise_twice", {2, 6, 5, 4}, {8, 1, 3, 2}, {.padding = {1, 1}, .groups = 4}},
      {"depthwise_1", {2, 5, 9, 1}, {1, 1, 3, 3}, {.stride = {1, 2}, .padding = {1, 1}}},
      {"depthwise_3", {2, 9, 8, 3}, {3, 1, 5, 5}, {.stride = {2, 2}, .padding = {2, 2}, .groups = 3}},
      {"depthwise_17",
       {1, 11, 13, 17},
       {17, 1, 3, 2},
       {.stride = {2, 3}, .padding = {4, 3}, .dilation = {3, 2}, .groups = 17}},
      {"depthwise_24", {2, 9, 17, 24}, {24, 1, 2, 3}, {.padding = {1, 2}, .dilation = {2, 4}, .groups = 24}},
      {"depthwise_dilated_stride",
       {1, 15, 16, 5},
       {5, 1, 2, 2},
       {.stride = {2, 2}, .padding = {3, 3}, .dilation = {3, 3}, .groups = 5}},
      {"depthwise_stride_past_window",
       {2, 11, 9, 6},
       {6, 1, 1, 2},
       {.stride = {3, 4}, .padding = {2, 0}, .groups = 6}},
      {"depthwise_whole_image", {2, 4, 5, 19}, {19, 1, 4, 5}, {.groups = 19}},
      {"depthwise_in_parts", {1, 131, 127, 2}, {2, 1, 3, 3}, {.padding = {1, 1}, .groups = 2}},
      {"depthwise_of_many", {1, 5, 4, 300}, {300, 1, 5, 5}, {.padding = {2, 2}, .groups = 300}}};
}

}  // namespace

std::vector<OpCase> conv_cases() {
  std::vector<Row> rows = {
      {"3x3", {2, 7, 5, 3}, {4, 3, 3, 3}, {.padding = {1, 1}}},
      {"1x1", {3, 4, 5, 7}, {6, 7, 1, 1}},
      {"1x1_stride2", {2, 7, 6, 5}, {3, 5, 1, 1}, {.stride = {2, 2}}},
      {"1x1_stride_and_odd_channels", {3, 17, 16, 5}, {9, 5, 1, 1}, {.stride = {2, 2}}},
      {"1x1_stride_and_groups", {2, 9, 7, 6}, {8, 3, 1, 1}, {.stride = {3, 2}, .groups = 2}},
      {"no_padding", {2, 6, 9, 3}, {5, 3, 4, 2}},
      {"asymmetric", {2, 9, 11, 3}, {5, 3, 3, 4}, {.stride = {2, 3}, .padding = {2, 1}}},
      {"dilated", {2, 9, 13, 3}, {4, 3, 3, 2}, {.padding = {1, 2}, .dilation = {2, 3}}},
      {"dilated_stride",
       {1, 11, 12, 2},
       {3, 2, 3, 3},
       {.stride = {3, 2}, .padding = {0, 3}, .dilation = {3, 2}}},
      {"groups3", {2, 5, 7, 6}, {9, 2, 3, 3}, {.padding = {1, 1}, .groups = 3}},
      {"groups2_wide", {1, 4, 3, 34}, {66, 17, 3, 2}, {.padding = {1, 0}, .groups = 2}},
      {"groups_1x1", {3, 4, 5, 8}, {12, 2, 1, 1}, {.groups = 4}},
      {"all_of_it",
       {2, 13, 10, 6},
       {4, 3, 3, 2},
       {.stride = {2, 3}, .padding = {3, 1}, .dilation = {3, 2}, .groups = 2}},
      {"one", {1, 1, 1, 1}, {1, 1, 1, 1}},
      {"c31_o33", {2, 5, 4, 31}, {33, 31, 3, 3}, {.padding = {1, 1}}},
      {"c33_o127", {1, 4, 5, 33}, {127, 33, 1, 1}},
      {"c129_o16", {1, 3, 4, 129}, {16, 129, 3, 1}, {.padding = {1, 0}}},
      {"blocks", {2, 8, 6, 32}, {64, 32, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {"stem", {3, 8, 9, 3}, {16, 3, 3, 3}, {.padding = {1, 1}}, false},
      {"whole_image", {3, 4, 5, 2}, {7, 2, 4, 5}},
      {"even_kernel", {2, 5, 6, 3}, {4, 3, 2, 4}, {.padding = {1, 2}}},
      {"window_in_padding", {2, 3, 4, 2}, {3, 2, 1, 2}, {.padding = {2, 3}}},
      {"unused_edge", {2, 8, 9, 3}, {4, 3, 2, 3}, {.stride = {5, 4}}},
      {"stride_past_window", {2, 7, 9, 3}, {4, 3, 1, 2}, {.stride = {3, 4}}},
      {"no_weight_gradient", {2, 4, 5, 3}, {6, 3, 3, 3}, {.padding = {1, 1}}, true, false},
      {"empty_batch", {0, 4, 5, 3}, {2, 3, 3, 3}, {.padding = {1, 1}}},
      {"no_channels", {2, 4, 5, 0}, {3, 0, 3, 3}, {.padding = {1, 1}}},
      {"no_outputs", {2, 4, 5, 3}, {0, 3, 3, 3}, {.padding = {1, 1}}},
      {"no_rows", {2, 0, 5, 3}, {4, 3, 2, 3}, {.padding = {1, 1}}},
  };
  std::ranges::copy(depthwise_rows(), std::back_inserter(rows));
  std::vector<OpCase> cases;
  for (const Row& r : rows) cases.push_back(conv_case(r));
  for (const char* name : {"3x3", "1x1_stride2", "asymmetric", "groups3", "all_of_it", "c31_o33", "blocks",
                           "stem", "no_weight_gradient", "no_channels", "depthwise", "depthwise_twice"}) {
    Row r = *std::ranges::find(rows, name, &Row::name);
    r.name += "_channels_last", r.options.channels_last = true;
    cases.push_back(conv_case(r));
  }
  return cases;
}

}  // namespace ssn::test
