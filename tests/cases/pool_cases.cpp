#include <cmath>
#include <limits>

#include "tests/op_case.h"

namespace ssn::test {
namespace {

/// Calls window(values inside the image) for each output element and collects what it returns.
template <class F>
Doubles over_windows(const Shape& x, const PoolOptions& o, const Doubles& values, F window) {
  Doubles y;
  for (std::int64_t n = 0; n < x[0]; ++n)
    for (std::int64_t top = -o.padding[0]; top + o.kernel[0] <= x[1] + o.padding[0]; top += o.stride[0])
      for (std::int64_t left = -o.padding[1]; left + o.kernel[1] <= x[2] + o.padding[1]; left += o.stride[1])
        for (std::int64_t c = 0; c < x[3]; ++c) {
          Doubles inside;
          for (std::int64_t i = top; i < top + o.kernel[0]; ++i)
            for (std::int64_t j = left; j < left + o.kernel[1]; ++j)
              if (i >= 0 && i < x[1] && j >= 0 && j < x[2])
                inside.push_back(values.at(static_cast<std::size_t>(((n * x[1] + i) * x[2] + j) * x[3] + c)));
          y.push_back(window(inside));
        }
  return y;
}

struct Row {
  std::string name;
  Shape x;
  PoolOptions options = {};
};

OpCase max_case(const Row& r) {
  return {.name = "max_pool_" + r.name,
          .inputs = {{r.x, Domain::distinct}},
          .f = [o = r.options](std::span<const Var> in) { return max_pool(in[0], o); },
          .reference =
              [r](std::span<const Doubles> in) {
                return over_windows(r.x, r.options, in[0], [](const Doubles& v) {
                  double most = -std::numeric_limits<double>::infinity();
                  for (double e : v) most = std::max(most, e);
                  return most;
                });
              },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

OpCase avg_case(const Row& r) {
  return {.name = "avg_pool_" + r.name,
          .inputs = {{r.x}},
          .f = [o = r.options](std::span<const Var> in) { return avg_pool(in[0], o); },
          .reference =
              [r](std::span<const Doubles> in) {
                return over_windows(r.x, r.options, in[0], [&](const Doubles& v) {
                  const double area = static_cast<double>(r.options.kernel[0] * r.options.kernel[1]);
                  double sum = 0;
                  for (double e : v) sum += e;
                  return sum / (r.options.count_padding ? area : static_cast<double>(v.size()));
                });
              },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

OpCase global_case(const Shape& x) {
  return {.name = fmt::format("global_avg_pool_{}", x.text()),
          .inputs = {{x}},
          .f = [](std::span<const Var> in) { return global_avg_pool(in[0]); },
          .reference =
              [x](std::span<const Doubles> in) {
                Doubles y(static_cast<std::size_t>(x[0] * x[3]));
                const std::size_t channels = static_cast<std::size_t>(x[3]);
                const std::size_t image = static_cast<std::size_t>(x[1] * x[2]) * channels;
                for (std::size_t i = 0; i < in[0].size(); ++i)
                  y[i / image * channels + i % channels] += in[0][i] / static_cast<double>(x[1] * x[2]);
                return y;
              },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

/// The means as factors of their channels: x has a gradient already when that of its means comes.
OpCase factors_case(const Shape& x) {
  OpCase c = global_case(x);
  c.name = fmt::format("global_avg_pool_as_factors_{}", x.text());
  c.f = [](std::span<const Var> in) { return scale_channels(in[0], global_avg_pool(in[0])); };
  c.reference = [x, means = c.reference](std::span<const Doubles> in) {
    const Doubles factors = means(in);
    const std::size_t channels = static_cast<std::size_t>(x[3]);
    const std::size_t image = static_cast<std::size_t>(x[1] * x[2]) * channels;
    Doubles y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= factors[i / image * channels + i % channels];
    return y;
  };
  return c;
}

}  // namespace

std::vector<OpCase> pool_cases() {
  const std::vector<Row> rows = {
      {"2x2", {2, 6, 8, 5}},
      {"odd_image", {2, 7, 5, 3}},
      {"3x3_stride2_padding1", {2, 7, 10, 4}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
      {"asymmetric", {3, 9, 11, 2}, {.kernel = {2, 5}, .stride = {3, 1}, .padding = {1, 2}}},
      {"gaps", {2, 8, 9, 3}, {.kernel = {1, 2}, .stride = {3, 4}}},
      {"whole_image", {2, 4, 3, 7}, {.kernel = {4, 3}, .stride = {1, 1}}},
      {"inside_only",
       {2, 5, 6, 3},
       {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_padding = false}},
      {"one", {1, 1, 1, 1}, {.kernel = {1, 1}, .stride = {1, 1}}},
      {"no_images", {0, 4, 6, 3}},
      {"no_channels", {2, 4, 6, 0}},
      {"c31", {2, 5, 4, 31}, {.kernel = {3, 2}, .stride = {1, 2}}},
      {"c33", {1, 4, 5, 33}},
      {"c127", {1, 5, 4, 127}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
      {"c129", {1, 4, 3, 129}, {.kernel = {2, 2}, .stride = {1, 1}}},
      {"c1100", {1, 3, 4, 1100}},
  };
  std::vector<OpCase> cases;
  for (const Row& r : rows) {
    cases.push_back(max_case(r));
    cases.push_back(avg_case(r));
  }
  for (const Shape& x :
       {Shape{0, 2, 3, 4}, Shape{2, 3, 4, 0}, Shape{1, 1, 1, 1}, Shape{3, 1, 1, 31}, Shape{2, 5, 7, 33},
        Shape{2, 8, 8, 127}, Shape{5, 3, 2, 129}, Shape{2, 31, 33, 3}, Shape{2, 3, 5, 1100}})
    cases.push_back(global_case(x));
  for (const Shape& x : {Shape{2, 5, 3, 17}, Shape{3, 1, 1, 4}, Shape{0, 2, 3, 4}})
    cases.push_back(factors_case(x));
  return cases;
}

}  // namespace ssn::test
