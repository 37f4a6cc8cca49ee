// Budgets: what can be said, and how they are divided over the groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/random.h"
#include "ssn/allocation.h"
#include "ssn/budget.h"
#include "tests/usage_error.h"

namespace ssn {
namespace {

using test::usage_error_of;

TEST(BudgetTest, SharesAreExactAndRoundedDown) {
  EXPECT_EQ(Budget().resolve(103), 25);
  EXPECT_EQ(Budget::parse("25%").resolve(36'461'232), 9'115'308);
  EXPECT_EQ(Budget::parse("0.25x").resolve(36'461'235), 9'115'308);
  EXPECT_EQ(Budget::parse("0.29x").resolve(100), 29);  // 0.29 * 100 < 29 in double
  EXPECT_EQ(Budget::parse("12.5%").resolve(17), 2);
  EXPECT_EQ(Budget::parse("150%").resolve(7), 10);
  EXPECT_EQ(Budget::parse("3x").resolve(5), 15);
  EXPECT_EQ(Budget::parse(".5x").resolve(9), 4);
}

TEST(BudgetTest, Numbers) {
  EXPECT_EQ(Budget::parse("1").resolve(5), 1);
  EXPECT_EQ(Budget::parse("97000").resolve(5), 97'000);
  EXPECT_EQ(Budget::parse("97K").resolve(5), 97'000);
  EXPECT_EQ(Budget::parse("4M").resolve(5), 4'000'000);
  EXPECT_EQ(Budget::parse("1.5M").resolve(5), 1'500'000);
  EXPECT_EQ(Budget::parse("2G").resolve(5), 2'000'000'000);
  EXPECT_EQ(Budget::parse("0.001k").resolve(5), 1);
  EXPECT_EQ(Budget::parse("0012").resolve(5), 12);
}

TEST(BudgetTest, Words) {
  EXPECT_EQ(Budget::parse("largest").kind(), Budget::Kind::largest);
  EXPECT_EQ(Budget::parse("dense").kind(), Budget::Kind::dense);
  EXPECT_EQ(Budget::parse("4M").text(), "4M");
}

TEST(BudgetTest, NonsenseIsAUsageErrorThatNamesIt) {
  for (const char* text : {"",
                           "0",
                           "0%",
                           "0.0x",
                           "0K",
                           "-5",
                           "-25%",
                           "nan",
                           "inf",
                           "NaN%",
                           "twelve",
                           "M",
                           "%",
                           "x",
                           ".",
                           "1.2.3",
                           "1e6",
                           "4 M",
                           " 4M",
                           "4MM",
                           "25%%",
                           "0x10",
                           "+5",
                           "1.5",
                           "1.2345K",
                           "12345678901234567",
                           "0.12345678901234567x",
                           "9999999999999G",
                           "2000G"}) {
    const std::string error = usage_error_of([&] { Budget::parse(text); });
    EXPECT_NE(error, "") << text;
    EXPECT_NE(error.find(text), std::string::npos) << error;
  }
  EXPECT_NE(usage_error_of([] { Budget::parse("0"); }).find("zero"), std::string::npos);
  EXPECT_NE(usage_error_of([] { Budget::parse("-1M"); }).find("negative"), std::string::npos);
  EXPECT_NE(usage_error_of([] { Budget::parse("1.5"); }).find("whole"), std::string::npos);
}

TEST(BudgetTest, SharesOutOfRange) {
  EXPECT_NE(usage_error_of([] { Budget::parse("0.001%").resolve(99'999); }).find("less than one"),
            std::string::npos);
  EXPECT_EQ(Budget::parse("0.001%").resolve(100'000), 1);
  EXPECT_NE(usage_error_of([] { Budget::parse("9999999999999999x").resolve(36'461'232); }).find("more than"),
            std::string::npos);
}

std::vector<std::int64_t> split(std::vector<std::int64_t> sizes, std::vector<int> groups,
                                std::int64_t budget) {
  const int count = 1 + *std::max_element(groups.begin(), groups.end());
  return split_budget(sizes, groups, count, budget);
}
using Sizes = std::vector<std::int64_t>;

TEST(SplitTest, ALayerAloneGetsItsSize) {
  EXPECT_EQ(split({50, 10, 30, 20}, {0, 1, 1, 1}, 80), (Sizes{50, 30}));
  EXPECT_EQ(split({50, 10, 30, 20}, {0, 1, 1, 1}, 51), (Sizes{50, 1}));
}

TEST(SplitTest, TooLittleForTheLayersAloneIsProRata) {
  EXPECT_EQ(split({50, 10, 30, 20}, {0, 1, 1, 1}, 50), (Sizes{23, 27}));  // 22.7 and 27.3
  EXPECT_EQ(split({60, 40}, {0, 1}, 10), (Sizes{6, 4}));
}

TEST(SplitTest, AllAloneLeaveTheRest) {
  EXPECT_EQ(split({60, 40}, {0, 1}, 1000), (Sizes{60, 40}));
}

TEST(SplitTest, NoneGetsNothing) {
  EXPECT_EQ(split({1'000'000, 1'000'000, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, 3), (Sizes{1, 1, 1}));
  EXPECT_EQ(split({1'000'000, 1'000'000, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, 10), (Sizes{8, 1, 1}));
  const std::string error = usage_error_of([] { split({5, 6, 7}, {0, 1, 2}, 2); });
  EXPECT_NE(error.find("2 parameters are too few for 3 groups"), std::string::npos) << error;
}

TEST(SplitTest, AnyNetworkAndBudget) {
  const Random draws(7, "split");
  std::uint64_t next = 0;
  const auto below = [&](std::int64_t n) { return draws.below(n, next++); };
  int pro_rata = 0, with_rest = 0, shared = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const int layers = static_cast<int>(1 + below(30)), count = static_cast<int>(1 + below(layers));
    std::vector<int> groups;
    Sizes sizes, wanted(count), members(count);
    for (int i = 0; i < layers; ++i) {
      groups.push_back(i < count ? i : static_cast<int>(below(count)));
      sizes.push_back(1 + below(std::int64_t{1} << below(24)));
      wanted[groups[i]] += sizes[i];
      ++members[groups[i]];
    }
    const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    const std::int64_t budget = count + below(3 * all);
    const Sizes share = split_budget(sizes, groups, count, budget);
    ASSERT_EQ(share.size(), wanted.size());
    for (const std::int64_t s : share) ASSERT_GE(s, 1);
    std::int64_t singles = 0, others = 0;
    for (int g = 0; g < count; ++g) members[g] == 1 ? singles += wanted[g] : ++others;
    const std::int64_t sum = std::accumulate(share.begin(), share.end(), std::int64_t{0});
    if (others == 0 && budget >= all) {
      ++with_rest;
      ASSERT_EQ(share, wanted);
      continue;
    }
    ASSERT_EQ(sum, budget);
    if (budget - singles < others) {
      ++pro_rata;
      continue;
    }
    ++shared;
    for (int g = 0; g < count; ++g) {
      if (members[g] == 1) {
        ASSERT_EQ(share[g], wanted[g]);
      } else if (share[g] > 1) {  // near its exact share, but for what the smallest were raised by
        const double exact = static_cast<double>(budget - singles) * static_cast<double>(wanted[g]) /
                             static_cast<double>(all - singles);
        ASSERT_LE(std::abs(static_cast<double>(share[g]) - exact), 1.0 + static_cast<double>(others));
      }
    }
  }
  EXPECT_GT(pro_rata, 500);
  EXPECT_GT(with_rest, 500);
  EXPECT_GT(shared, 5000);
}

TEST(SplitTest, LargestLayers) {
  EXPECT_EQ(largest_layers(Sizes{5, 9, 7, 3}, std::vector<int>{0, 1, 0, 1}, 2), (Sizes{7, 9}));
}

}  // namespace
}  // namespace ssn
