#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "autograd/ops.h"
#include "kernels/conv.h"
#include "kernels/cpu/onednn.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "tests/close.h"

// What convolutions and matrix products refuse, how they keep oneDNN's primitives, and how exact they are
// where oneDNN takes another way for large geometries. Their values: cases/.
namespace ssn::test {
namespace {

Var zeros(const Shape& shape, DType dtype = DType::f32) {
  return Var::leaf(Tensor::zeros(shape, dtype));
}

/// The message that f fails with.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

void expect_message(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

TEST(Conv2d, refuses_shapes_that_do_not_fit_and_names_both) {
  const Var x = zeros({2, 5, 7, 4});
  expect_message(message_of([&] {
                   conv2d(x, zeros({6, 3, 1, 1}));
                 }),
                 {"conv2d", "2x5x7x4", "6x3x1x1", "expected an input of 3 channels"});
  expect_message(message_of([&] {
                   conv2d(x, zeros({6, 4, 1, 1}), {.groups = 2});
                 }),
                 {"in 2 groups", "8 channels"});
  expect_message(message_of([&] {
                   conv2d(x, zeros({3, 2, 1, 1}), {.groups = 2});
                 }),
                 {"o a multiple of the groups"});
  expect_message(message_of([&] { conv2d(x, zeros({3, 4, 1, 1}), {.groups = 0}); }), {"in 0 groups"});
  expect_message(message_of([&] {
                   conv2d(x, zeros({6, 4}));
                 }),
                 {"2x5x7x4", "6x4", "(n, h, w, c)", "(o, c/groups, kh, kw)"});
}

TEST(Conv2d, refuses_windows_and_options_that_make_no_output) {
  const Var x = zeros({2, 5, 7, 4});
  // A truncating division would make one row of (5 − 6) / 2 + 1.
  expect_message(message_of([&] {
                   conv2d(x, zeros({3, 4, 6, 1}), {.stride = {2, 2}});
                 }),
                 {"2x5x7x4", "3x4x6x1", "window covers 6 rows", "only 5"});
  expect_message(message_of([&] {
                   conv2d(x, zeros({3, 4, 3, 3}), {.padding = {1, 1}, .dilation = {1, 5}});
                 }),
                 {"window covers 11 columns", "only 9"});
  for (const ConvOptions& o :
       {ConvOptions{.stride = {0, 1}}, ConvOptions{.padding = {0, -1}}, ConvOptions{.dilation = {1, 0}}})
    expect_message(message_of([&] { conv2d(x, zeros({3, 4, 1, 1}), o); }), {"at least 1"});
  expect_message(message_of([&] { conv2d(x, zeros({3, 4, 0, 1})); }), {"3x4x0x1", "at least 1"});
}

TEST(Conv2d, refuses_mixed_types) {
  expect_message(message_of([] {
                   conv2d(zeros({1, 2, 2, 1}), zeros({1, 1, 1, 1}, DType::f64));
                 }),
                 {"conv2d", "f32", "f64"});
  expect_message(message_of([] {
                   linear(zeros({1, 2}), zeros({3, 2}, DType::f64));
                 }),
                 {"linear", "f32", "f64"});
}

TEST(Linear, refuses_shapes_that_do_not_fit) {
  expect_message(message_of([] {
                   linear(zeros({2, 3}), zeros({4, 5}));
                 }),
                 {"linear", "2x3", "4x5", "(rows, i) and (o, i)"});
  expect_message(message_of([] { linear(zeros({2, 3, 5}), zeros({4, 5})); }), {"2x3x5"});
}

TEST(Conv2d, regenerates_its_weight_for_the_input_gradient_alone) {
  int made = 0;
  const Tensor weight = Tensor::full({3, 2, 1, 1}, 0.5, DType::f32);
  const auto make = [&] {
    ++made;
    return weight;
  };
  const Var source = zeros({1});
  const Var w =
      Var::regenerated(weight.shape(), DType::f32, Device::cpu, make, {source}, [](const Tensor&, auto) {});
  const Var x = zeros({1, 4, 5, 2});
  const Var y = conv2d(x, w);
  EXPECT_EQ(made, 1);
  const Tensor gy = Tensor::full(y.shape(), 1, DType::f32);
  backward({&y, 1}, {&gy, 1});
  EXPECT_EQ(made, 2);
  EXPECT_TRUE(close(values_of(x.grad()), std::vector<double>(40, 1.5), 1e-6));
}

TEST(Conv2d, follows_the_number_of_threads) {
  const Tensor xv = Tensor::full({2, 9, 8, 16}, 0.25, DType::f32),
               wv = Tensor::full({32, 16, 3, 3}, 0.5, DType::f32);
  const int threads = num_threads();
  for (int t : {1, 3, 2, 1}) {
    set_num_threads(t);
    const Var w = Var::leaf(wv), y = conv2d(Var::constant(xv), w);
    const Tensor gy = Tensor::full(y.shape(), 1, DType::f32);
    EXPECT_TRUE(close(values_of(y.value()), std::vector<double>(2 * 7 * 6 * 32, 18), 1e-6))
        << t << " threads";
    backward({&y, 1}, {&gy, 1});
    EXPECT_TRUE(close(values_of(w.grad()), std::vector<double>(32 * 16 * 9, 21), 1e-6)) << t << " threads";
  }
  set_num_threads(threads);
}

/// A convolution's result and gradients, computed in `dtype` from the same random numbers.
std::vector<std::vector<double>> conv_results(const Shape& x_shape, std::int64_t o, DType dtype,
                                              Device device = Device::cpu) {
  const Random random(7, "conv");
  std::uint64_t draw = 0;
  const auto leaf = [&](const Shape& shape, double scale) {
    const Tensor t = Tensor::empty(shape, DType::f32);
    for (float& v : t.span<float>()) v = static_cast<float>(scale * random.normal(draw++));
    return Var::leaf(t.to(dtype).to(device));
  };
  const std::int64_t c = x_shape[3];
  const Var x = leaf(x_shape, 1), w = leaf({o, c, 3, 3}, 1 / std::sqrt(9.0 * static_cast<double>(c)));
  const Var gy = leaf({x_shape[0], x_shape[1], x_shape[2], o}, 1);
  const Var y = conv2d(x, w, {.padding = {1, 1}});
  const Tensor g = gy.value();
  backward({&y, 1}, {&g, 1});
  return {values_of(y.value()), values_of(x.grad()), values_of(w.grad())};
}

double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Of geometries that are computed by Winograd's way where oneDNN has it: it adds and subtracts larger numbers
// than its result.
TEST(Conv2d, keeps_single_precision_in_large_geometries) {
  const std::pair<Shape, std::int64_t> geometries[] = {
      {{4, 32, 32, 64}, 64}, {{3, 27, 30, 48}, 80}, {{8, 13, 14, 128}, 32}};
  for (const auto& [x, o] : geometries) {
    const auto found = conv_results(x, o, DType::f32), expected = conv_results(x, o, DType::f64);
    EXPECT_EQ(found, conv_results(x, o, DType::f32)) << "the same bits again";
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::vector<double> difference = found[i];
      for (std::size_t j = 0; j < difference.size(); ++j) difference[j] -= expected[i][j];
      const double size = root_mean_square(expected[i]);
      EXPECT_LT(root_mean_square(difference), 1e-5 * size) << x.text() << ", result " << i;
      EXPECT_TRUE(close(found[i], expected[i], 1e-5)) << x.text() << ", result " << i;
    }
  }
}

TEST(Conv2dOnCuda, rounds_to_tf32_only_where_it_may) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device";
  const auto exact = conv_results({2, 5, 6, 8}, 16, DType::f64);
  const auto errors = [&] {
    const auto found = conv_results({2, 5, 6, 8}, 16, DType::f32, Device::cuda);
    std::vector<double> errors;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      double largest = 0;
      for (std::size_t j = 0; j < exact[i].size(); ++j)
        largest = std::max(largest, std::abs(found[i][j] - exact[i][j]));
      errors.push_back(largest / root_mean_square(exact[i]));
    }
    return errors;
  };
  for (const double e : errors()) EXPECT_LT(e, 1e-5);
  if constexpr (build::has_cuda) {
    cuda_queue().tf32 = true;
    for (const double e : errors()) {
      EXPECT_GT(e, 1e-5);
      EXPECT_LT(e, 1e-2);
    }
    cuda_queue().tf32 = false;
  }
}

// cuDNN reads in large steps. A part of a tensor may begin between them.
TEST(Conv2dOnCuda, takes_parts_of_tensors) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device";
  const Tensor all = Tensor::empty({3, 3, 3, 3}, DType::f32), w = Tensor::full({2, 3, 2, 2}, 0.5, DType::f32);
  for (std::int64_t i = 0; i < all.size(); ++i) all.data<float>()[i] = static_cast<float>(i % 7);
  const auto result = [&](Device device) {
    const Tensor part = all.to(device).slice(27, {2, 3, 3, 3});
    return values_of(conv2d(Var::constant(part), Var::constant(w.to(device))).value());
  };
  EXPECT_EQ(result(Device::cuda), result(Device::cpu));
}

// Memory behind it is not written: what oneDNN asks for is not always what it takes.
TEST(Conv2d, stays_in_its_workspace) {
  kernels::ConvGeometry g{4, 32, 32, 64, 64, 3, 3};
  g.padding[0] = g.padding[1] = 1;
  CpuQueue& q = cpu_queue();
  std::size_t bytes = 0;
  for (const auto pass : {kernels::ConvPass::forward, kernels::ConvPass::data, kernels::ConvPass::weight})
    bytes = std::max(bytes, kernels::conv_workspace<float>(q, g, pass));
  constexpr std::size_t kGuard = 1 << 16;
  const Storage workspace = Storage::allocate(Device::cpu, bytes + kGuard);
  auto* guard = static_cast<unsigned char*>(workspace.data()) + bytes;
  std::fill_n(guard, kGuard, 0xAB);
  const Tensor x = Tensor::full({4, 32, 32, 64}, 1, DType::f32),
               w = Tensor::full({64, 64, 3, 3}, 1, DType::f32),
               y = Tensor::full({4, 32, 32, 64}, 0, DType::f32);
  kernels::conv_forward<float>(q, g, x.data<float>(), w.data<float>(), y.data<float>(), workspace.data());
  kernels::conv_backward_data<float>(q, g, y.data<float>(), w.data<float>(), x.data<float>(),
                                     workspace.data());
  kernels::conv_backward_weight<float>(q, g, x.data<float>(), y.data<float>(), w.data<float>(),
                                       workspace.data());
  EXPECT_EQ(std::count(guard, guard + kGuard, 0xAB), std::ptrdiff_t{kGuard});
}

TEST(OneDnn, errors_name_the_operation_and_what_it_worked_on) {
  const auto f = [] { throw dnnl::error(dnnl_unimplemented, "could not create a primitive"); };
  const auto guarded = [&] {
    kernels::onednn::guarded(
        "conv_forward", [] { return "x 2x3x5x7"; }, f);
  };
  expect_message(message_of(guarded),
                 {"[conv_forward]", "could not create a primitive", "unimplemented", "x 2x3x5x7"});
}

TEST(OneDnn, plans_are_made_once_and_the_least_recently_used_goes) {
  kernels::onednn::PlanCache<int, int> cache(2);
  int made = 0;
  const auto get = [&](int key) {
    return cache.get(key, [&] {
      ++made;
      return 10 * key;
    });
  };
  const auto one = get(1);
  get(2);
  EXPECT_EQ(get(1), one);
  EXPECT_EQ(made, 2);
  get(3);  // 2 goes
  EXPECT_EQ(get(1), one);
  EXPECT_EQ(made, 3);
  get(2), get(3);  // 1 goes
  EXPECT_EQ(made, 5);
  EXPECT_EQ(*one, 10);  // valid while held
}

TEST(OneDnn, plans_are_shared_by_threads) {
  kernels::onednn::PlanCache<int, int> cache(4);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i)
          if (*cache.get(i % 7, [&] { return i % 7; }) != i % 7) ++wrong;
      });
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace ssn::test
