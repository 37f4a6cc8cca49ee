#include <gtest/gtest.h>

#include <set>

#include "runtime/flavour.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "runtime/tensor.h"
#include "tests/close.h"

namespace ssn::test {
namespace {

TEST(Philox, gives_the_published_draws) {  // known answers of Random123, philox4x32-10
  const auto is = [](const PhiloxDraw& d, std::array<std::uint32_t, 4> want) {
    return std::equal(want.begin(), want.end(), d.v);
  };
  EXPECT_TRUE(is(philox(0, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_TRUE(is(philox(~0ull, ~0ull, ~0ull), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_TRUE(is(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
                 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, has_the_right_moments_and_bounds) {
  const Random random(3, "test");
  double sum = 0, squares = 0;
  std::set<std::int64_t> seen;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double n = random.normal(i), u = random.uniform(i);
    sum += n, squares += n * n;
    ASSERT_TRUE(u >= 0 && u < 1);
    seen.insert(random.below(7, i));
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.04);
  EXPECT_EQ(seen, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Storage, is_reused_and_counted) {
  if (build::exact_allocation) GTEST_SKIP() << "this build gives every storage back at once";
  { const Tensor warm = Tensor::empty({1000, 1000}, DType::f32); }
  const PoolStats before = pool_stats(Device::cpu);
  for (int i = 0; i < 100; ++i) {
    const Tensor t = Tensor::empty({1000, 1000}, DType::f32);
    EXPECT_EQ(pool_stats(Device::cpu).in_use - before.in_use >= t.bytes(), true);
  }
  const PoolStats after = pool_stats(Device::cpu);
  EXPECT_EQ(after.held, before.held);
  EXPECT_EQ(after.in_use, before.in_use);
  EXPECT_EQ(after.requests_to_system, before.requests_to_system);
  trim_pool(Device::cpu);
  EXPECT_LT(pool_stats(Device::cpu).held, after.held);
}

TEST(Storage, guards_see_a_write_past_the_end) {
  if (build::exact_allocation) GTEST_SKIP() << "here the sanitizers watch";
  const std::size_t before = guard_storages();
  {
    const Tensor t = Tensor::empty({3}, DType::f32);
    t.data<float>()[3] = 1;
  }
  EXPECT_EQ(guard_storages(), before + 1);
}

TEST(Tensor, views_slices_and_copies) {
  const std::vector<std::int32_t> values = {1, 2, 3, 4, 5, 6};
  const Tensor t = Tensor::of<std::int32_t>({2, 3}, values);
  EXPECT_EQ(values_of(t.slice(2, {2, 2})), (std::vector<double>{3, 4, 5, 6}));
  EXPECT_EQ(t.view({3, 2}).raw(), t.raw());
  const Tensor copy = t.clone();
  copy.fill(9);
  EXPECT_EQ(values_of(t.to(DType::f32)), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(t.view({6}).exclusive());
  EXPECT_THROW(t.view({7}), Error);
  EXPECT_THROW(t.slice(5, {2}), Error);
  EXPECT_THROW(t.data<float>(), Error);
  EXPECT_THROW(Tensor::of<std::int32_t>({7}, values), Error);
  EXPECT_THROW((Shape{-1, 2}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_EQ(Shape{}.size(), 1);
  EXPECT_EQ((Shape{4, 0}).size(), 0);
}

TEST(Parallel, covers_everything_once_on_any_number_of_threads) {
  const int threads = num_threads();
  for (int t : {1, 2, 3, 5}) {
    set_num_threads(t);
    for (std::int64_t n : {0, 1, 31, 33, 1000, 4099}) {
      std::vector<int> hits(static_cast<std::size_t>(n));
      parallel_for(n, 7, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), n) << n << " on " << t;
    }
  }
  set_num_threads(threads);
}

TEST(Close, fails_on_nan_and_names_the_element) {
  const std::vector<double> a = {1, std::nan(""), 3}, b = {1, 2, 3};
  EXPECT_FALSE(close(a, b, 1e3));
  EXPECT_FALSE(close(a, a, 1e3));
  EXPECT_TRUE(close(b, b, 0));
  const std::vector<double> c = {1, 2, 3.5};
  EXPECT_NE(std::string(close(c, b, 0.1).message()).find("element 2"), std::string::npos);
}

}  // namespace
}  // namespace ssn::test
