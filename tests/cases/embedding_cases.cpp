#include "tests/op_case.h"

namespace ssn::test {
namespace {

/// Ids with repetitions, the first and the last row among them.
std::vector<std::int32_t> ids_for(std::int64_t count, std::int64_t rows) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(i * i * 7 % rows));
  if (!ids.empty()) ids.back() = static_cast<std::int32_t>(rows - 1);
  return ids;
}

OpCase case_of(std::int64_t count, std::int64_t rows, std::int64_t cols) {
  const auto ids = ids_for(count, rows);
  return {.name = fmt::format("embedding_{}_of_{}x{}", count, rows, cols),
          .inputs = {{Shape{rows, cols}}},
          .f =
              [=](std::span<const Var> in) {
                return embedding(in[0], Tensor::of<std::int32_t>({count}, ids).to(in[0].device()));
              },
          .reference =
              [=](std::span<const Doubles> in) {
                Doubles y;
                for (const std::int32_t id : ids)
                  for (std::int64_t c = 0; c < cols; ++c)
                    y.push_back(in[0][static_cast<std::size_t>(id * cols + c)]);
                return y;
              },
          .adversarial = {Domain::large, Domain::spread}};
}

/// Rows of activations, used beside them.
OpCase gathered_case() {
  return {.name = "embedding_of_activations",
          .inputs = {{Shape{3, 4}}},
          .f =
              [](std::span<const Var> in) {
                const Var h = add(in[0], in[0]);
                const std::int32_t ids[] = {2, 0, 2};
                return add(h, embedding(h, Tensor::of<std::int32_t>({3}, ids).to(h.device())));
              },
          .reference =
              [](std::span<const Doubles> in) {
                Doubles y;
                for (std::size_t i = 0; i < 12; ++i)
                  y.push_back(2 * in[0][i] + 2 * in[0][i % 4 + (i / 4 == 1 ? 0 : 8)]);
                return y;
              }};
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  return {case_of(0, 3, 4),     case_of(1, 1, 1),    case_of(5, 3, 0),     case_of(300, 7, 33),
          case_of(129, 50, 64), case_of(40, 9, 130), case_of(700, 11, 5), gathered_case()};
}

}  // namespace ssn::test
