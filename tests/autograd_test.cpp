#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "autograd/parameters.h"
#include "runtime/dispatch.h"
#include "tests/close.h"

namespace ssn::test {
namespace {

Tensor scalar(double v) {
  return Tensor::full({1}, v, DType::f64);
}
double number(const Tensor& t) {
  return t.span<double>()[0];
}

/// y = a · b, written here so that this test needs no kernel beside the tape's own.
Var multiply(const Var& a, const Var& b) {
  return Var::result(scalar(number(a.value()) * number(b.value())), {a, b},
                     [](const Tensor& gy, std::span<const Var> in) {
                       in[0].add_grad(scalar(number(gy) * number(in[1].value())));
                       in[1].add_grad(scalar(number(gy) * number(in[0].value())));
                     });
}
Var forwarded(const Var& a) {
  return Var::result(a.value(), {a}, [](const Tensor& gy, std::span<const Var> in) { in[0].add_grad(gy); });
}

TEST(Tape, hooks_fire_once_after_the_last_use) {
  const Var shared = Var::leaf(scalar(3)), late = Var::leaf(scalar(5));
  std::vector<std::string> order;
  double seen = 0;
  shared.on_ready([&] {
    order.push_back("shared");
    seen = number(shared.grad());
  });
  late.on_ready([&] { order.push_back("late"); });
  backward(multiply(multiply(multiply(shared, shared), shared), late));  // late · shared³
  EXPECT_EQ(order, (std::vector<std::string>{"late", "shared"}));
  EXPECT_EQ(seen, 135);
  EXPECT_EQ(number(late.grad()), 27);
}

TEST(Tape, deep_graphs_neither_overflow_in_backward_nor_when_dropped) {
  const Var x = Var::leaf(scalar(1));
  for (bool walk : {true, false}) {
    Var y = x;
    for (int i = 0; i < 1'000'000; ++i) y = forwarded(y);
    if (walk) backward(y);
  }
  EXPECT_EQ(number(x.grad()), 1);
}

TEST(Tape, a_shared_gradient_tensor_is_not_written_through) {
  const Var a = Var::leaf(scalar(1)), b = Var::leaf(scalar(1));
  const Var sum = add(a, b);  // both inputs get the same tensor
  backward(add(sum, forwarded(a)));
  EXPECT_EQ(number(a.grad()), 2);
  EXPECT_EQ(number(b.grad()), 1);
}

TEST(Tape, regenerated_values_are_made_at_each_use) {
  int made = 0;
  const Var x = Var::leaf(scalar(2));
  const Var r = Var::regenerated(
      {1}, DType::f64, Device::cpu, [&] { return ++made, scalar(10); }, {x},
      [](const Tensor& gy, std::span<const Var> in) { in[0].add_grad(gy); });
  EXPECT_EQ(made, 0);
  backward(multiply(r, Var::leaf(scalar(7))));
  EXPECT_EQ(made, 2);  // forward, and for the other factor's gradient
  EXPECT_EQ(number(x.grad()), 7);
}

TEST(Tape, no_grad_records_nothing) {
  const Var x = Var::leaf(scalar(2));
  {
    const NoGrad no_grad;
    EXPECT_FALSE(multiply(x, x).wants_grad());
  }
  EXPECT_TRUE(multiply(x, x).wants_grad());
}

TEST(Tape, wrong_shapes_are_named) {
  const Var x = Var::leaf(Tensor::zeros({2, 3}, DType::f32));
  EXPECT_THROW(x.add_grad(Tensor::zeros({3, 2}, DType::f32)), Error);
  EXPECT_THROW(backward(x), Error);
}

TEST(Parameters, are_laid_out_groups_first_and_summed_without_gaps) {
  Parameters p(DType::f64);
  const auto index = [](std::int64_t i) { return static_cast<double>(i); };
  const Var gain = p.add("gain", {5}, Section::ordinary, true, index);
  const Var g1 = p.add("group0", {17}, Section::group, true, index);
  const Var g2 = p.add("group1", {3}, Section::group, true, index);
  const Var alpha = p.add("alpha", {2}, Section::coefficient, false, index);
  const Var bias = p.add("bias", {4}, Section::ordinary, true, index);
  const Tensor running = p.add_buffer("running_mean", {5}, 0.5);
  EXPECT_THROW(p.add("gain", {1}, Section::ordinary, true, index), Error);
  EXPECT_THROW(p.add_buffer("gain", {1}, 0), Error);
  p.build();
  EXPECT_EQ(p.entry("group0").range.first, 0);
  EXPECT_EQ(p.entry("group1").range.first, 32);
  EXPECT_EQ(p.entry("gain").range.first, 48);
  EXPECT_EQ(p.total(), 31);
  EXPECT_EQ(p.count(Section::group), 20);
  std::int64_t summed = 0;
  for (const FlatRange& r : p.stretches()) summed += r.size;
  EXPECT_EQ(summed, p.total());
  EXPECT_EQ(p.stretches().size(), 3u);
  ASSERT_EQ(p.ranges(false).size(), 1u);
  EXPECT_EQ(p.ranges(false)[0].size, 2);
  EXPECT_EQ(number(running), 0.5);
  EXPECT_EQ(values_of(bias.value()), (std::vector<double>{0, 1, 2, 3}));

  // Gradients go straight into the flat buffer.
  gain.add_grad(Tensor::full({5}, 2, DType::f64));
  gain.add_grad(Tensor::full({5}, 3, DType::f64));
  EXPECT_EQ(values_of(p.gradients().slice(48, {5})), (std::vector<double>(5, 5)));
  p.zero_gradients();
  EXPECT_EQ(values_of(gain.grad()), (std::vector<double>(5, 0)));
  EXPECT_THROW(p.add("late", {1}, Section::ordinary, true, index), Error);
  EXPECT_THROW(p.entry("running_mean"), Error);
}

}  // namespace
}  // namespace ssn::test
