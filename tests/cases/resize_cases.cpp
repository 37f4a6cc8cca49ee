#include "tests/cases/bilinear.h"

namespace ssn::test {
namespace {

OpCase resize_case(const std::string& name, const Shape& shape, std::int64_t out_h, std::int64_t out_w) {
  return {.name = "resize_" + name,
          .inputs = {{shape}},
          .f = [=](std::span<const Var> in) { return resize_bilinear(in[0], out_h, out_w); },
          .reference = [=](std::span<const Doubles> in) { return bilinear(in[0], shape, out_h, out_w); },
          .adversarial = {Domain::all_negative, Domain::large, Domain::equal}};
}

}  // namespace

std::vector<OpCase> resize_cases() {
  return {resize_case("up", {2, 3, 5, 3}, 7, 11),
          resize_case("down", {1, 9, 13, 2}, 4, 3),
          resize_case("same", {1, 6, 5, 1}, 6, 5),
          resize_case("up_and_down", {3, 2, 31, 1}, 33, 7),
          resize_case("one_row", {1, 1, 50, 1}, 1, 144),
          resize_case("one_column", {1, 33, 1, 1}, 5, 1),
          resize_case("from_one_element", {2, 1, 1, 3}, 3, 5),
          resize_case("to_one_element", {2, 7, 3, 2}, 1, 1),
          resize_case("long_row", {1, 2, 3, 1}, 3, 2600),
          resize_case("long_row_up", {1, 2, 1500, 1}, 3, 2900),
          resize_case("long_row_of_images", {2, 3, 700, 2}, 5, 1300),
          resize_case("long_row_down", {1, 2, 2600, 1}, 3, 1200),
          resize_case("empty", {0, 4, 3, 2}, 5, 5)};
}

}  // namespace ssn::test
