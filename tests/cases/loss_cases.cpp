#include <algorithm>
#include <cmath>

#include "autograd/label_ranks.h"
#include "tests/op_case.h"

namespace ssn::test {
namespace {

/// Labels that reach every class and mark some rows as taking no part.
std::vector<std::int32_t> labels_for(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (std::int64_t r = 0; r < rows; ++r)
    labels.push_back(r % 5 == 3 ? -1 : static_cast<std::int32_t>((r * 7 + 2) % classes));
  return labels;
}

OpCase case_of(std::int64_t rows, std::int64_t classes, double smoothing) {
  const double scale = 0.37;
  const auto labels = labels_for(rows, classes);
  return {.name = fmt::format("cross_entropy_{}x{}_{}", rows, classes, smoothing > 0 ? "smooth" : "hard"),
          .inputs = {{Shape{rows, classes}}},
          .f =
              [=](std::span<const Var> in) {
                const Tensor l = Tensor::of<std::int32_t>(Shape{rows}, labels).to(in[0].device());
                return cross_entropy(in[0], l, smoothing, scale);
              },
          .reference =
              [=](std::span<const Doubles> in) {
                double loss = 0;
                const std::size_t n = static_cast<std::size_t>(classes);
                for (std::size_t r = 0; r < labels.size(); ++r) {
                  if (labels[r] < 0) continue;
                  const double* x = in[0].data() + r * n;
                  const double most = *std::max_element(x, x + n);
                  double sum = 0;
                  for (std::size_t c = 0; c < n; ++c) sum += std::exp(x[c] - most);
                  for (std::size_t c = 0; c < n; ++c) {
                    const bool at = c == static_cast<std::size_t>(labels[r]);
                    const double target = (at ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
                    if (target > 0) loss -= target * (x[c] - most - std::log(sum));
                  }
                }
                return Doubles{scale * loss};
              },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal, Domain::spread}};
}

OpCase ranks_case(std::int64_t rows, std::int64_t classes, Domain domain) {
  std::vector<std::int32_t> labels;
  for (std::int64_t r = 0; r < rows; ++r) labels.push_back(static_cast<std::int32_t>((r * 7 + 2) % classes));
  return {
      .name = fmt::format("label_ranks_{}x{}_{}", rows, classes, domain == Domain::large ? "ties" : "plain"),
      .inputs = {{Shape{rows, classes}, domain, false}},
      .f =
          [=](std::span<const Var> in) {
            return label_ranks(in[0], Tensor::of<std::int32_t>(Shape{rows}, labels).to(in[0].device()));
          },
      .reference =
          [=](std::span<const Doubles> in) {
            Doubles ranks;
            for (std::size_t r = 0; r < labels.size(); ++r) {
              std::vector<std::pair<double, std::int32_t>> order;
              for (std::int32_t c = 0; c < classes; ++c)
                order.emplace_back(
                    -in[0][r * static_cast<std::size_t>(classes) + static_cast<std::size_t>(c)], c);
              std::sort(order.begin(), order.end());
              const auto at = std::ranges::find(order, labels[r], [](const auto& x) { return x.second; });
              ranks.push_back(static_cast<double>(at - order.begin()));
            }
            return ranks;
          }};
}

}  // namespace

std::vector<OpCase> loss_cases() {
  std::vector<OpCase> cases;
  for (double smoothing : {0.0, 0.1}) {
    for (std::int64_t n : {1, 31, 33, 127, 129, 1030}) cases.push_back(case_of(7, n, smoothing));
    for (std::int64_t n : {0, 1, 31, 33, 127, 129, 2050}) cases.push_back(case_of(n, 10, smoothing));
  }
  for (const auto& [rows, classes] : {std::pair{0, 3}, {5, 1}, {7, 33}, {3, 1030}, {40, 10}})
    for (const Domain domain : {Domain::normal, Domain::large})
      cases.push_back(ranks_case(rows, classes, domain));
  return cases;
}

}  // namespace ssn::test
