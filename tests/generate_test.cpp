#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "autograd/ops.h"
#include "kernels/resize.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "tests/close.h"

namespace ssn::test {
namespace {

using Method = WeightRule::Method;

struct Place {
  DType dtype;
  Device device;
};

Tensor random_tensor(const Shape& shape, Place place, std::uint64_t stream) {
  const Random random(11, stream);
  const Tensor t = Tensor::empty(shape, DType::f64);
  for (std::int64_t i = 0; i < t.size(); ++i)
    t.data<double>()[i] = random.normal(static_cast<std::uint64_t>(i));
  return t.to(place.dtype).to(place.device);
}

/// A group of all methods: templates at common and odd distances, overlapping ones, a shared mask.
struct Group {
  Var theta, mask;
  std::vector<WeightRecipe> recipes;
  std::vector<Tensor> grads;

  Group(Place place, std::int64_t size, std::int64_t slot)
      : theta(Var::leaf(random_tensor({size}, place, 0))), mask(Var::leaf(random_tensor({3, 9}, place, 1))) {
    const auto add = [&](WeightRule rule, Var coefficients) {
      const auto stream = static_cast<std::uint64_t>(recipes.size());
      grads.push_back(random_tensor(rule.shape, place, 100 + stream));
      recipes.push_back({std::move(rule), theta, std::move(coefficients)});
    };
    const auto alpha = [&](std::int64_t k) {
      return Var::leaf(random_tensor({k}, place, 50 + static_cast<std::uint64_t>(recipes.size())));
    };
    add({Method::templates, {slot}, {0, 2 * slot, slot, 3 * slot}}, alpha(4));
    add({Method::tiles, {2, size}, {}, 9}, mask);
    add({Method::templates, {2, slot}, {0, 2 * slot}}, alpha(2));
    add({Method::exact, {777}, {slot - 3}}, {});
    add({Method::templates, {slot - 1}, {5, 6, slot, 1, 17}}, alpha(5));
    add({Method::tiles, {3 * size - 5}, {}, 9}, mask);
    add({Method::templates, {slot}, {size - slot, 0}}, alpha(2));
  }
  void clear() const {
    theta.clear_grad();
    for (const auto& r : recipes)
      if (r.coefficients) r.coefficients.clear_grad();
  }
  /// Copies of theta's and all coefficients' gradients.
  std::vector<Tensor> results() const {
    std::vector<Tensor> all{theta.grad().clone()};
    for (const auto& r : recipes)
      if (r.coefficients) all.push_back(r.coefficients.grad().clone());
    return all;
  }
  std::vector<Tensor> backward_in_one_call() const {
    clear();
    generate_backward(recipes, grads);
    return results();
  }
  std::vector<Tensor> backward_layer_by_layer() const {
    clear();
    for (std::size_t i = 0; i < recipes.size(); ++i) generate_backward({&recipes[i], 1}, {&grads[i], 1});
    return results();
  }
};

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << "tensor " << i;
}

/// What a list and its layers one by one have in common: all bits, but on CUDA the coefficients' gradients,
/// all but the first, to rounding.
void expect_alike(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a[0].device() == Device::cpu) return expect_same(a, b);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(same_bits(a[0], b[0]));
  for (std::size_t i = 1; i < a.size(); ++i)
    EXPECT_TRUE(close(values_of(a[i]), values_of(b[i]), a[i].dtype() == DType::f32 ? 1e-5 : 1e-13))
        << "tensor " << i;
}

class Generate : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (!available(GetParam().device))
      GTEST_SKIP() << "no CUDA device, and the kernels do not run on the host here";
  }
};

TEST_P(Generate, one_call_equals_a_call_a_layer) {
  const Group g(GetParam(), 4 * 5120 + 31, 5120);
  const std::vector<Tensor> together = generate(g.recipes);
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_TRUE(same_bits(together[i], generate({&g.recipes[i], 1})[0])) << "layer " << i;
    EXPECT_TRUE(same_bits(together[i], generated_weight(g.recipes[i]).value())) << "layer " << i;
  }
  expect_alike(g.backward_in_one_call(), g.backward_layer_by_layer());
}

TEST_P(Generate, one_call_equals_a_call_a_layer_with_shared_projections) {
  const Place place = GetParam();
  const auto leaf = [&](const Shape& shape, std::uint64_t stream) {
    return Var::leaf(random_tensor(shape, place, stream));
  };
  const Var theta = leaf({4 * 5120}, 0), w = leaf({4, 24}, 1), b = leaf({4}, 2);
  std::vector<WeightRecipe> recipes;
  std::vector<Tensor> grads;
  for (std::uint64_t i = 0; i < 5; ++i) {
    WeightRule rule{Method::templates, {64, 80}, {0, 5120, 10240}};
    rule.softmax = i == 1;
    if (i > 2) rule.resize = WeightRule::Resize{30, 40, 64, 80};
    recipes.push_back({rule, theta, leaf({24}, 3 + i), w, b});
    grads.push_back(random_tensor(rule.shape, place, 100 + i));
  }
  const std::vector<Tensor> together = generate(recipes);
  for (std::size_t i = 0; i < recipes.size(); ++i)
    EXPECT_TRUE(same_bits(together[i], generate({&recipes[i], 1})[0])) << "layer " << i;
  const auto gradients = [&](bool one_call) {
    std::vector<Var> all{theta, w, b};
    for (const WeightRecipe& r : recipes) all.push_back(r.coefficients);
    for (const Var& v : all) v.clear_grad();
    if (one_call) generate_backward(recipes, grads);
    for (std::size_t i = 0; !one_call && i < recipes.size(); ++i)
      generate_backward({&recipes[i], 1}, {&grads[i], 1});
    std::vector<Tensor> results;
    for (const Var& v : all) results.push_back(v.grad().clone());
    return results;
  };
  expect_alike(gradients(true), gradients(false));
}

TEST_P(Generate, streamed_weights_are_the_same) {  // a list beyond the caches is written past them
  const Group g(GetParam(), 4 * 200003 + 31, 200003);
  const std::vector<Tensor> together = generate(g.recipes);
  for (std::size_t i = 0; i < together.size(); ++i)
    EXPECT_TRUE(same_bits(together[i], generate({&g.recipes[i], 1})[0])) << "layer " << i;
}

TEST_P(Generate, any_number_of_threads_gives_the_same_bits) {
  const Group g(GetParam(), 4 * 5120 + 31, 5120);
  const int threads = num_threads();
  const std::vector<Tensor> weights = generate(g.recipes), grads = g.backward_in_one_call();
  for (int t : {1, 2, 3, 5}) {
    set_num_threads(t);
    expect_same(generate(g.recipes), weights);
    expect_same(g.backward_in_one_call(), grads);
  }
  set_num_threads(threads);
}

TEST_P(Generate, contributions_are_fused_and_in_order) {
  const Group g(GetParam(), 4 * 5120 + 31, 5120);
  const auto check_type = [&]<class T>(T) {
    std::vector<T> want(static_cast<std::size_t>(g.theta.size()), T(0));
    const std::int64_t size = g.theta.size();
    for (std::size_t l = 0; l < g.recipes.size(); ++l) {
      const WeightRule& rule = g.recipes[l].rule;
      const Tensor grad = g.grads[l].to(Device::cpu);
      const Var& coefficients = g.recipes[l].coefficients;
      const Tensor values = coefficients ? coefficients.value().to(Device::cpu) : Tensor();
      const T *gw = grad.data<T>(), *c = coefficients ? values.data<T>() : nullptr;
      const std::int64_t n = rule.shape.size();
      const auto add = [&](std::int64_t at, T a, T x) {
        want[static_cast<std::size_t>(at)] = std::fma(a, x, want[static_cast<std::size_t>(at)]);
      };
      if (rule.method == Method::tiles)
        for (std::int64_t i = 0; i < n; ++i)
          add(i % size, i < size ? T(1) : c[(i / size - 1) * rule.window + i % size % rule.window], gw[i]);
      else
        for (std::size_t k = 0; k < rule.offsets.size(); ++k)
          for (std::int64_t i = 0; i < n; ++i) add(rule.offsets[k] + i, c ? c[k] : T(1), gw[i]);
    }
    EXPECT_TRUE(same_bits(g.backward_in_one_call()[0], Tensor::of<T>({size}, want)));
  };
  GetParam().dtype == DType::f32 ? check_type(float()) : check_type(double());
}

/// Whole pages of memory that cannot be written while this lives. `works` is false for a GPU's memory.
class ReadOnly {
 public:
  ReadOnly(const Tensor& t, std::int64_t first, std::int64_t end) {
    const auto address = [&](std::int64_t i) {
      return reinterpret_cast<std::uintptr_t>(t.raw()) + static_cast<std::uintptr_t>(i) * size_of(t.dtype());
    };
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    begin_ = (address(first) + page - 1) / page * page;
    size_ = address(end) / page * page - begin_;
    works = mprotect(reinterpret_cast<void*>(begin_), size_, PROT_READ) == 0;
  }
  ~ReadOnly() {
    if (works) mprotect(reinterpret_cast<void*>(begin_), size_, PROT_READ | PROT_WRITE);
  }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;
  bool works;

 private:
  std::uintptr_t begin_, size_;
};

/// Weights of every method, as of convolutions, some of odd sizes.
struct Windows {
  Var theta, mask;
  std::vector<WeightRecipe> recipes;
  std::vector<Tensor> grads;  // in theta's order

  Windows(Place place, std::int64_t slot)
      : theta(Var::leaf(random_tensor({5 * slot}, place, 0))),
        mask(Var::leaf(random_tensor({3, 9}, place, 1))) {
    const auto add = [&](WeightRule rule, Var coefficients) {
      grads.push_back(random_tensor(rule.shape, place, 100 + recipes.size()));
      recipes.push_back({std::move(rule), theta, std::move(coefficients)});
    };
    const auto alpha = [&](std::int64_t k) {
      return Var::leaf(random_tensor({k}, place, 50 + recipes.size()));
    };
    const std::int64_t filters = slot / 144;
    add({Method::templates, {filters, 16, 3, 3}, {0, 2 * slot, slot, 3 * slot}}, alpha(4));
    add({Method::templates, {filters, 9, 4, 4}, {slot, 0, 4 * slot}}, alpha(3));
    add({Method::templates, {5, 7, 3, 3}, {5, 16, slot, 1}}, alpha(4));
    add({Method::templates, {slot / 24, 24, 1, 1}, {slot, 0}}, alpha(2));
    add({Method::templates, {8, 24}, {3, 200}}, alpha(2));
    add({Method::exact, {3, 40, 3, 3}, {slot - 3}}, {});
    add({Method::tiles, {filters * 7, 16, 3, 3}, {}, 9}, mask);
  }
  std::vector<WeightRecipe> in_format(const WeightFormat& format, bool every_other) const {
    std::vector<WeightRecipe> all = recipes;
    for (std::size_t i = 0; i < all.size(); i += every_other ? 2 : 1) all[i].format = format;
    return all;
  }
};

TEST_P(Generate, formats_are_the_plain_weight_moved_and_rounded) {
  const bool half = GetParam().dtype == DType::f32;
  for (const std::int64_t slot : {1152, 1296, 5328}) {
    const Windows g(GetParam(), slot);
    const std::vector<Tensor> plain = generate(g.recipes);
    for (const WeightFormat& format :
         {WeightFormat{false, true}, WeightFormat{half, true}, WeightFormat{half, false}})
      for (const bool mixed : {false, true}) {
        const std::vector<WeightRecipe> recipes = g.in_format(format, mixed);
        const std::vector<Tensor> found = generate(recipes);
        for (std::size_t i = 0; i < found.size(); ++i) {
          const Shape& shape = recipes[i].rule.shape;
          const Tensor want = reformatted(plain[i].to(Device::cpu), shape, {}, recipes[i].format);
          EXPECT_EQ(found[i].shape(), shape_in(recipes[i].format, shape));
          EXPECT_TRUE(same_bits(found[i].to(Device::cpu), want)) << "slot " << slot << ", layer " << i;
          EXPECT_TRUE(same_bits(found[i], generated_weight(recipes[i]).value())) << "layer " << i;
        }
      }
  }
}

TEST_P(Generate, gradients_in_any_order_add_up_to_the_same_bits) {
  for (const std::int64_t slot : {1152, 1296, 5328}) {
    const Windows g(GetParam(), slot);
    const auto results = [&](const std::vector<WeightRecipe>& recipes, bool one_call) {
      std::vector<Tensor> grads;
      for (std::size_t i = 0; i < recipes.size(); ++i)
        grads.push_back(reformatted(g.grads[i], recipes[i].rule.shape, {},
                                    {.channels_last = recipes[i].format.channels_last}));
      std::vector<Var> all{g.theta, g.mask};
      for (const WeightRecipe& r : recipes)
        if (r.rule.method == Method::templates) all.push_back(r.coefficients);
      for (const Var& v : all) v.clear_grad();
      if (one_call) generate_backward(recipes, grads);
      for (std::size_t i = 0; !one_call && i < recipes.size(); ++i)
        generate_backward({&recipes[i], 1}, {&grads[i], 1});
      std::vector<Tensor> found;
      for (const Var& v : all) found.push_back(v.grad().clone());
      return found;
    };
    const std::vector<Tensor> plain = results(g.recipes, true);
    const bool half = GetParam().dtype == DType::f32;
    for (const bool mixed : {false, true})
      for (const bool one_call : {true, false})
        expect_alike(results(g.in_format({half, true}, mixed), one_call), plain);
  }
}

TEST_P(Generate, what_no_layer_uses_is_not_written) {  // or the program ends by a signal
  const std::int64_t slot = 5120;
  const Var theta = Var::leaf(random_tensor({4 * slot + 31}, GetParam(), 0)),
            alpha = Var::leaf(random_tensor({2}, GetParam(), 1));
  const Tensor grad = random_tensor({slot}, GetParam(), 2);
  for (const std::int64_t second : {2 * slot, 2 * slot + 5}) {  // made of whole rows of theta, or not
    const WeightRecipe r{{Method::templates, {slot}, {0, second}}, theta, alpha};
    const ReadOnly between(theta.grad_buffer(), slot, 2 * slot);
    if (!between.works) GTEST_SKIP() << "this memory cannot be protected";
    generate_backward({&r, 1}, {&grad, 1});
  }
  const auto g = values_of(theta.grad());
  EXPECT_NE(g[0], 0);
  EXPECT_TRUE(std::all_of(g.begin() + slot, g.begin() + 2 * slot, [](double v) { return v == 0; }));
}

TEST_P(Generate, an_exact_weight_is_a_view) {
  const Var theta = Var::leaf(random_tensor({40}, GetParam(), 0));
  const Var w = generated_weight({{Method::exact, {3, 5}, {7}}, theta, {}});
  EXPECT_EQ(w.value().raw(), theta.value().slice(7, {15}).raw());
}

TEST_P(Generate, a_weight_is_generated_at_each_use) {
  const Var theta = Var::leaf(random_tensor({40}, GetParam(), 0)),
            alpha = Var::leaf(random_tensor({2}, GetParam(), 1));
  const Var w = generated_weight({{Method::templates, {3, 5}, {7, 9}}, theta, alpha});
  const Tensor before = w.value();
  theta.value().fill(0);
  EXPECT_TRUE(same_bits(w.value(), Tensor::zeros({3, 5}, GetParam().dtype, GetParam().device)));
  EXPECT_FALSE(same_bits(before, w.value()));
}

TEST_P(Generate, gradients_add_to_what_is_there) {
  const Group g(GetParam(), 4 * 300 + 31, 300);
  g.backward_in_one_call();
  const Tensor once = g.mask.grad().clone();
  generate_backward(g.recipes, g.grads);
  const auto twice = values_of(g.mask.grad()), single = values_of(once);
  std::vector<double> want;
  for (double v : single) want.push_back(2 * v);
  EXPECT_TRUE(close(twice, want, GetParam().dtype == DType::f32 ? 1e-5 : 1e-12));
}

TEST(Resize, readers_are_the_outputs_that_read) {
  for (const std::int64_t in : {1, 2, 3, 7, 10, 31, 64, 100})
    for (const std::int64_t out : {1, 2, 3, 5, 7, 10, 33, 64, 97, 1000})
      for (std::int64_t k = 0; k < in; ++k) {
        const kernels::ResizeRange range = kernels::resize_readers(k, in, out);
        for (std::int64_t i = 0; i < out; ++i) {
          const double source = kernels::resize_source(i, in, out), place = static_cast<double>(k);
          EXPECT_EQ(place - 1 < source && source < place + 1, range.first <= i && i < range.last)
              << k << " of " << in << " by " << i << " of " << out;
        }
        EXPECT_LE(kernels::resize_readers(std::max<std::int64_t>(k - 1, 0), in, out).first, range.first);
      }
}

TEST_P(Generate, what_is_not_finite_reaches_only_what_reads_it) {
  const std::int64_t rows = 6, cols = 9, to_rows = 23, to_cols = 31;
  const std::int64_t i = 11, j = 20;  // the output whose gradient is not a number
  const Var theta = Var::leaf(random_tensor({rows * cols}, GetParam(), 0));
  WeightRecipe r{{Method::exact, {to_rows, to_cols}, {0}}, theta};
  r.rule.resize = WeightRule::Resize{rows, cols, to_rows, to_cols};
  Tensor gy = Tensor::zeros({to_rows, to_cols}, DType::f64);
  gy.data<double>()[i * to_cols + j] = std::numeric_limits<double>::quiet_NaN();
  gy = gy.to(GetParam().dtype).to(GetParam().device);
  generate_backward({&r, 1}, {&gy, 1});
  const auto g = values_of(theta.grad());
  for (std::int64_t k = 0; k < rows; ++k)
    for (std::int64_t l = 0; l < cols; ++l) {
      const bool reads = kernels::resize_weight(kernels::resize_source(i, rows, to_rows), k) > 0 &&
                         kernels::resize_weight(kernels::resize_source(j, cols, to_cols), l) > 0;
      EXPECT_EQ(std::isnan(g[static_cast<std::size_t>(k * cols + l)]), reads) << k << ", " << l;
    }
}

INSTANTIATE_TEST_SUITE_P(, Generate,
                         testing::Values(Place{DType::f32, Device::cpu}, Place{DType::f64, Device::cpu},
                                         Place{DType::f32, Device::cuda}, Place{DType::f64, Device::cuda}),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name_of(info.param.dtype), name_of(info.param.device));
                         });

std::string error_of(const WeightRecipe& r) {
  try {
    generated_weight(r);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(GenerateErrors, wrong_recipes_are_refused) {
  const Var theta = Var::leaf(Tensor::zeros({40}, DType::f32)),
            one = Var::leaf(Tensor::zeros({1}, DType::f32)),
            mask = Var::leaf(Tensor::zeros({1, 9}, DType::f32));
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(error_of({{Method::templates, {4, 5}, {21}}, theta, one}), "20 elements at 21"));
  EXPECT_TRUE(has(error_of({{Method::templates, {4, 5}, {-1}}, theta, one}), "at -1"));
  EXPECT_TRUE(
      has(error_of({{Method::templates, {4, 5}, {0, 20}}, theta, one}), "2 templates need 2 coefficients"));
  EXPECT_EQ(error_of({{Method::templates, {4, 5}, {0}}, theta, {}}), "");  // the mean
  EXPECT_TRUE(has(error_of({{Method::exact, {4, 5}, {0}}, theta, one}), "no coefficients"));
  EXPECT_TRUE(has(error_of({{Method::tiles, {81}, {}, 9}, theta, mask}), "at least 2x9, found 1x9"));
  EXPECT_TRUE(has(error_of({{Method::tiles, {80}, {}, 3}, theta, mask}), "at least 1x3, found 1x9"));
  EXPECT_TRUE(has(error_of({{Method::tiles, {80}, {}, 0}, theta, mask}), "must be positive"));
  EXPECT_EQ(error_of({{Method::tiles, {80}, {}, 9}, theta, mask}), "");
  EXPECT_TRUE(has(error_of({{Method::tiles, {80}, {}, 9, 41}, theta, mask}), "a tile has 41 elements"));
  EXPECT_TRUE(has(error_of({{Method::tiles, {80}, {}, 9, 30}, theta, mask}), "at least 2x9, found 1x9"));
  const Var w = Var::leaf(Tensor::zeros({2, 5}, DType::f32)), phi = Var::leaf(Tensor::zeros({5}, DType::f32));
  const WeightRule two{Method::templates, {4, 5}, {0, 20}}, three{Method::templates, {4, 5}, {0, 20, 7}};
  EXPECT_TRUE(has(error_of({two, theta, phi, w, {}}), "one of them is missing"));
  EXPECT_TRUE(has(error_of({three, theta, phi, w, phi}), "at least 3x5 and its bias, found 2x5 and 5"));
  EXPECT_TRUE(has(error_of({two, theta, one, w, phi}), "at least 2x1"));
  EXPECT_TRUE(has(error_of({{Method::exact, {4, 5}, {0}}, theta, {}, w, phi}), "needs templates"));
  WeightRule rule{Method::exact, {4, 5}, {21}};
  rule.resize = WeightRule::Resize{4, 5, 4, 5};
  EXPECT_TRUE(has(error_of({rule, theta, {}}), "20 elements at 21"));
  rule.resize = WeightRule::Resize{2, 3, 4, 4};
  EXPECT_TRUE(has(error_of({rule, theta, {}}), "cannot be resized to 4x4"));
  rule.resize = WeightRule::Resize{4, 5, -4, -5};
  EXPECT_TRUE(has(error_of({rule, theta, {}}), "cannot be resized to -4x-5"));
  WeightRule repeated{Method::tiles, {81}, {}, 9};
  repeated.resize = WeightRule::Resize{4, 5, 9, 9};
  EXPECT_TRUE(has(error_of({repeated, theta, {}}), "tiles are not resized"));
  EXPECT_TRUE(has(error_of({{Method::templates, {4, 5}, {}}, theta, {}}), "at least one"));
  const Var wide = Var::leaf(Tensor::zeros({2}, DType::f64));
  EXPECT_TRUE(has(error_of({two, theta, wide}), "one type and device"));
  EXPECT_TRUE(has(error_of({.rule = {Method::exact, {2}, {0}}, .theta = wide, .format = {.half = true}}),
                  "needs an f32 theta, found f64"));
  rule.resize.reset();
  rule.softmax = true, rule.offsets = {0};
  EXPECT_TRUE(has(error_of({rule, theta, {}}), "softmax needs templates"));
}

}  // namespace
}  // namespace ssn::test
