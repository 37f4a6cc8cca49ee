#include "autograd/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "runtime/error.h"

namespace ssn {
namespace {

using Kind = ScheduleKind;
constexpr std::int64_t kSteps = 10;  // an epoch

TEST(Schedule, warm_up_climbs_in_equal_steps) {
  const ScheduleOptions o{.kind = Kind::constant, .lr = 0.3, .epochs = 5, .warmup = 1.5};
  for (std::int64_t step = 0; step < 15; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(o, step, kSteps), 0.3 * static_cast<double>(step + 1) / 15);
  EXPECT_EQ(learning_rate(o, 15, kSteps), 0.3);
  EXPECT_EQ(learning_rate(o, 49, kSteps), 0.3);
}

TEST(Schedule, cosine_falls_from_the_warm_up_to_the_end) {
  const ScheduleOptions o{.kind = Kind::cosine, .lr = 0.3, .epochs = 5, .warmup = 1, .final_lr = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, kSteps), 0.3);   // the warm-up's last step
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, kSteps), 0.3);  // the cosine's first
  EXPECT_DOUBLE_EQ(learning_rate(o, 30, kSteps), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 20, kSteps), 0.1 + 0.1 * (1 + std::numbers::sqrt2 / 2));
  EXPECT_GT(learning_rate(o, 49, kSteps), 0.1);
  EXPECT_NEAR(learning_rate(o, 50, kSteps), 0.1, 1e-15);
  EXPECT_NEAR(learning_rate(o, 5000, kSteps), 0.1, 1e-15);  // behind the end it stays
}

TEST(Schedule, steps_multiply_at_their_epochs) {
  const ScheduleOptions o{.kind = Kind::steps, .lr = 1, .epochs = 9, .milestones = {3, 6.5}, .factor = 0.2};
  EXPECT_EQ(learning_rate(o, 0, kSteps), 1);
  EXPECT_EQ(learning_rate(o, 29, kSteps), 1);
  EXPECT_DOUBLE_EQ(learning_rate(o, 30, kSteps), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 64, kSteps), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(o, 65, kSteps), 0.04);
}

TEST(Schedule, linear_falls_from_the_warm_up_to_the_end) {
  const ScheduleOptions o{.kind = Kind::linear, .lr = 0.3, .epochs = 5, .warmup = 1, .final_lr = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, kSteps), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, kSteps), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(o, 20, kSteps), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(o, 49, kSteps), 0.1 + 0.2 / 40);
  EXPECT_NEAR(learning_rate(o, 5000, kSteps), 0.1, 1e-15);
}

TEST(Schedule, exponential_falls_with_every_step_or_every_so_many_epochs) {
  ScheduleOptions o{.kind = Kind::exponential, .lr = 0.5, .epochs = 9, .warmup = 1, .factor = 0.8};
  EXPECT_DOUBLE_EQ(learning_rate(o, 4, kSteps), 0.25);  // the warm-up counts as time that has passed
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, kSteps), 0.5 * 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(o, 25, kSteps), 0.5 * std::pow(0.8, 2.5));
  o.every = 2.4;
  EXPECT_DOUBLE_EQ(learning_rate(o, 23, kSteps), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 24, kSteps), 0.5 * 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(o, 47, kSteps), 0.5 * 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(o, 72, kSteps), 0.5 * std::pow(0.8, 3));
}

TEST(Schedule, short_runs_have_rates_too) {
  for (const Kind kind : {Kind::constant, Kind::cosine, Kind::steps, Kind::linear, Kind::exponential})
    for (const double epochs : {0.0, 1.0})
      EXPECT_EQ(learning_rate({.kind = kind, .lr = 0.5, .epochs = epochs}, 0, 1), 0.5);
}

TEST(Schedule, refuses_options_without_sense) {
  const auto refused = [](const ScheduleOptions& o) { EXPECT_THROW(check_schedule(o), UsageError); };
  check_schedule({});
  refused({.lr = -0.1});
  refused({.lr = std::nan("")});
  refused({.lr = HUGE_VAL});
  refused({.epochs = -1});
  refused({.epochs = 3, .warmup = 4});
  refused({.warmup = -1});
  refused({.final_lr = -1});
  refused({.milestones = {5, 3}});
  refused({.factor = 0});
  refused({.every = -1});
}

}  // namespace
}  // namespace ssn
