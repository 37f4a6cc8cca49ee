#include "tools/training/phases.h"

#include <gtest/gtest.h>

namespace ssn {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TraceEvent event(const char* name, std::size_t thread, int begin, int end) {
  return {name, thread, begin * kMs, end * kMs};
}

TEST(Phases, EveryMomentOfAStepIsInOne) {
  const Trace trace{.events = {event("load", 0, 0, 5), event("step", 0, 10, 110), event("data", 0, 10, 13),
                               event("forward", 0, 15, 45), event("generate", 0, 16, 20),
                               event("conv2d", 0, 20, 40), event("backward", 0, 45, 95),
                               event("conv2d backward", 0, 50, 60), event("generate_backward", 0, 60, 65),
                               event("start sum", 0, 65, 67), event("finish sum", 0, 95, 100),
                               event("start sum", 0, 96, 97), event("optimizer", 0, 100, 108),
                               event("sgd", 0, 101, 107), event("evaluate", 0, 120, 150)}};
  const std::vector<StepTimes> steps = step_times(trace);
  ASSERT_EQ(steps.size(), 1u);
  const StepTimes& t = steps[0];
  EXPECT_NEAR(t.step, 0.100, 1e-9);
  EXPECT_NEAR(t[Phase::data], 0.003, 1e-9);
  EXPECT_NEAR(t[Phase::forward], 0.026, 1e-9);
  EXPECT_NEAR(t[Phase::generate], 0.009, 1e-9);
  EXPECT_NEAR(t[Phase::backward], 0.043, 1e-9);
  EXPECT_NEAR(t[Phase::reduce], 0.007, 1e-9);
  EXPECT_NEAR(t[Phase::optimizer], 0.008, 1e-9);
  EXPECT_NEAR(t[Phase::other], 0.004, 1e-9);
  EXPECT_EQ(t[Phase::hidden], 0);
}

TEST(Phases, WhatAnotherThreadSumsMeanwhileIsHidden) {
  const Trace trace{.events = {event("step", 0, 0, 100), event("backward", 0, 10, 80),
                               event("finish sum", 0, 80, 95), event("step", 0, 100, 200),
                               event("backward", 0, 110, 180), event("finish sum", 0, 180, 185),
                               event("allreduce", 1, 30, 90), event("allreduce", 1, 150, 184)}};
  const std::vector<StepTimes> steps = step_times(trace);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_NEAR(steps[0][Phase::hidden], 0.050, 1e-9);
  EXPECT_NEAR(steps[0][Phase::reduce], 0.015, 1e-9);
  EXPECT_NEAR(steps[1][Phase::hidden], 0.030, 1e-9);
  EXPECT_NEAR(steps[1][Phase::reduce], 0.005, 1e-9);
}

TEST(Phases, AScheduleHasNoWaiting) {
  const auto sum = [](int begin, int end, std::int64_t bytes) {
    return TraceEvent{"start sum", 0, begin * kMs, end * kMs, bytes};
  };
  Trace trace{.events = {event("step", 0, 0, 100), event("backward", 0, 10, 80), sum(30, 40, 4000),
                         sum(60, 65, 400), event("finish sum", 0, 80, 95), sum(81, 90, 40), sum(91, 94, 8)}};
  const SumSchedule s = sum_schedule(trace);
  ASSERT_EQ(s.sums.size(), 4u);
  const double after[] = {0.030, 0.050, 0.065, 0.065};
  const std::int64_t bytes[] = {4000, 400, 40, 8};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(s.sums[i].after, after[i], 1e-9) << i;
    EXPECT_EQ(s.sums[i].bytes, bytes[i]) << i;
  }
  EXPECT_NEAR(s.backward_end, 0.065, 1e-9);
  EXPECT_NEAR(s.tail, 0.005, 1e-9);
}

TEST(Phases, ARecordingWithoutStepsHasNone) {
  EXPECT_TRUE(step_times({.events = {event("evaluate", 0, 0, 5)}}).empty());
}

TEST(GroupCompletions, AreSharesOfTheLastStepsBackward) {
  const Trace trace{
      .events = {
          {"step", 0, 0, 100}, {"backward", 0, 20, 80}, {"step", 0, 100, 300}, {"backward", 0, 150, 250}}};
  const std::vector<GroupCompletion> found =
      group_completions(trace, {{3, 50, 40}, {3, 10, 160}, {0, 20, 200}, {1, 10, 250}});
  ASSERT_EQ(found.size(), 3u) << "the first is of another step";
  EXPECT_EQ(found[0].group, 3);
  EXPECT_DOUBLE_EQ(found[0].share, 0.1);
  EXPECT_DOUBLE_EQ(found[2].share, 1);
  EXPECT_DOUBLE_EQ(complete_after(found, 0.25), 0.1);
  EXPECT_DOUBLE_EQ(complete_after(found, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(complete_after(found, 1), 1);
}

}  // namespace
}  // namespace ssn
