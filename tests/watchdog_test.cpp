#include "runtime/watchdog.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ssn {
namespace {

/// A rank that has entered so many operations, and waits in the last one or in none.
struct Rank {
  std::uint64_t entered = 0;
  const char* inside = "";
  double silent = 0, stuck = 0;
  const char* busy = "";
  bool last = false;
};

std::string judge(const std::vector<Rank>& ranks, double timeout = 10) {
  const auto copy = [](std::string_view from, auto& to) { std::ranges::copy(from, to.begin()); };
  std::vector<RankView> views;
  for (const Rank& rank : ranks) {
    RankView& view = views.emplace_back();
    view.silent = rank.silent, view.stuck = rank.stuck;
    copy(rank.busy, view.pulse.busy);
    view.pulse.last = rank.last;
    view.pulse.entered = rank.entered;
    copy(rank.inside, view.pulse.inside);
  }
  return hang_text(views, timeout);
}

TEST(Watchdog, NamesTheRankThatDoesNotComeAndTheOperation) {
  EXPECT_EQ(
      judge({{.entered = 8, .inside = "agree", .stuck = 9},
             {.entered = 7, .stuck = 10},
             {.entered = 8, .inside = "agree", .stuck = 9}}),
      "rank 1 has not come to 'agree' for 10 s: alive, but it does not get on; ranks 0, 2 wait in 'agree'");
  EXPECT_EQ(
      judge({{.entered = 8, .inside = "agree", .stuck = 9}, {.entered = 7, .silent = 10, .stuck = 10}}),
      "rank 1 has not come to 'agree' for 10 s: no sign of life (stopped, dead or cut off); rank 0 waits in "
      "'agree'");
}

TEST(Watchdog, FindsTheRankThatTheOthersWaitForThroughEachOther) {
  // Rank 2 went on from the operation in which rank 1 waits for rank 0.
  EXPECT_EQ(
      judge({{.entered = 6, .stuck = 11},
             {.entered = 7, .inside = "gather", .stuck = 11},
             {.entered = 8, .inside = "barrier", .stuck = 11}}),
      "rank 0 has not come to 'barrier' for 10 s: alive, but it does not get on; rank 2 waits in 'barrier'; "
      "rank 1 waits in 'gather'");
}

TEST(Watchdog, LooksOnWhileARankGetsOnOrIsBusyOrNobodyWaits) {
  const Rank waiting{.entered = 8, .inside = "broadcast", .stuck = 1000};
  EXPECT_EQ(judge({{.entered = 7, .stuck = 9.9}, waiting}), "");
  EXPECT_EQ(judge({{.entered = 9, .inside = "agree", .stuck = 0.1}, waiting}), "") << "old news";
  EXPECT_EQ(judge({{.entered = 7, .stuck = 1000, .busy = "writes files"}, waiting}), "");
  EXPECT_EQ(judge({{.entered = 7, .stuck = 1000}, {.entered = 7, .stuck = 1000}}), "");
  EXPECT_EQ(judge({{.entered = 8, .silent = 99, .stuck = 99, .last = true}, waiting}), "");
  EXPECT_NE(judge({{.entered = 7, .silent = 10, .stuck = 1000, .busy = "writes files"}, waiting}), "")
      << "busy, but without life";
}

TEST(Watchdog, FindsOperationsThatDoNotMatchAndRanksThatNobodyWaitsFor) {
  EXPECT_EQ(judge({{.entered = 8, .inside = "agree", .stuck = 10},
                   {.entered = 8, .inside = "gather", .stuck = 10}}),
            "no rank has got on for 10 s, though none is missing: rank 0 waits in 'agree'; rank 1 waits in "
            "'gather'");
  EXPECT_EQ(judge({{.entered = 8}, {.entered = 8, .silent = 11, .stuck = 11}}),
            "rank 1 has shown no sign of life for 10 s (stopped, dead or cut off)");
}

TEST(Watchdog, ListsAFewOfManyRanks) {
  std::vector<Rank> ranks(100, {.entered = 8, .inside = "agree", .stuck = 2});
  ranks[50] = {.entered = 7, .stuck = 10};
  EXPECT_EQ(judge(ranks),
            "rank 50 has not come to 'agree' for 10 s: alive, but it does not get on; ranks 0, 1, 2, 3, 4, "
            "5, 6, 7 and "
            "91 others wait in 'agree'");
}

}  // namespace
}  // namespace ssn
