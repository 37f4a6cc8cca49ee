#include "autograd/reducer.h"

#include <gtest/gtest.h>

#include "runtime/error.h"

namespace ssn {
namespace {

/// One rank that writes down which bytes are summed.
class RecordingComm : public SoloComm {
 public:
  struct Sum {
    const void* data;
    std::int64_t count;
  };
  std::vector<Sum> sums;
  int waits = 0;

 protected:
  void sum(std::int64_t, void* data, std::int64_t count, DType, Device) override {
    sums.push_back({data, count});
  }
  void finish(std::int64_t) override { ++waits; }
};

/// Groups of these sizes, and three other parameters. 16 elements are a group's alignment.
struct Flat {
  explicit Flat(const std::vector<std::int64_t>& groups) {
    const auto zero = [](std::int64_t) { return 0.0; };
    for (std::size_t g = 0; g < groups.size(); ++g)
      parameters.add(fmt::format("group{}", g), Shape{groups[g]}, Section::group, true, zero);
    parameters.add("bias", Shape{3}, Section::ordinary, true, zero);
    parameters.build();
  }
  /// (first element, elements) of all that was summed.
  std::vector<std::pair<std::int64_t, std::int64_t>> summed() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const auto& [data, count] : comm.sums)
      all.emplace_back(static_cast<const float*>(data) - parameters.gradients().data<float>(), count);
    return all;
  }

  FlatRange group(int number) const { return parameters.stretches()[static_cast<std::size_t>(number)]; }

  RecordingComm comm;
  Parameters parameters;
};
using Sums = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST(Reducer, StartsAGroupThatFillsABucketAtOnce) {
  Flat flat({32, 32, 32});
  Reducer reducer(flat.comm, flat.parameters, {.bucket = 128});
  reducer.complete(flat.group(2));
  EXPECT_EQ(flat.summed(), (Sums{{64, 32}}));
  reducer.complete(flat.group(0));
  EXPECT_EQ(flat.summed(), (Sums{{64, 32}, {0, 32}}));
  EXPECT_EQ(flat.comm.waits, 0);
  reducer.finish();
  EXPECT_EQ(flat.summed(), (Sums{{64, 32}, {0, 32}, {32, 32}, {96, 3}}));
  EXPECT_EQ(flat.comm.waits, 1);
}

TEST(Reducer, GathersWhatIsSmall) {
  Flat flat({16, 16, 16, 16, 16});
  Reducer reducer(flat.comm, flat.parameters, {.bucket = 192});
  reducer.complete(flat.group(4));
  reducer.complete(flat.group(0));
  EXPECT_EQ(flat.summed(), Sums{});
  reducer.complete(flat.group(3));
  EXPECT_EQ(flat.summed(), (Sums{{0, 16}, {48, 32}})) << "a sum for what lies side by side";
  reducer.complete(flat.group(1));
  reducer.finish();
  EXPECT_EQ(flat.summed(), (Sums{{0, 16}, {48, 32}, {16, 32}, {80, 3}}));
}

TEST(Reducer, SendsNoGaps) {
  Flat flat({17, 16, 16});  // the second begins at 32
  Reducer reducer(flat.comm, flat.parameters, {.bucket = 1 << 20});
  for (const int group : {2, 1, 0}) reducer.complete(flat.group(group));
  EXPECT_EQ(flat.summed(), Sums{});
  reducer.finish();
  EXPECT_EQ(flat.summed(), (Sums{{0, 17}, {32, 35}}));
}

TEST(Reducer, WithoutOverlapSumsAllAtTheEndInEveryStep) {
  Flat flat({32, 32});
  Reducer reducer(flat.comm, flat.parameters, {.bucket = 1, .overlap = false});
  for (int step = 0; step < 2; ++step) {
    reducer.complete(flat.group(1));
    reducer.complete(flat.group(0));
    EXPECT_EQ(flat.comm.sums.size(), static_cast<std::size_t>(step));
    reducer.finish();
  }
  EXPECT_EQ(flat.summed(), (Sums{{0, 67}, {0, 67}}));
}

TEST(Reducer, StartsAPartOfAGroupBeforeTheRest) {
  Flat flat({96, 32});
  Reducer reducer(flat.comm, flat.parameters, {.bucket = 128});
  reducer.complete({64, 32});
  reducer.complete({0, 16});
  EXPECT_EQ(flat.summed(), (Sums{{64, 32}}));
  reducer.complete({16, 48});
  EXPECT_EQ(flat.summed(), (Sums{{64, 32}, {0, 64}}));
  reducer.finish();
  EXPECT_EQ(flat.summed(), (Sums{{64, 32}, {0, 64}, {96, 35}}));
}

TEST(Reducer, RefusesWhatIsCompletedTwice) {
  for (const std::int64_t bucket : {128, 1 << 20}) {
    Flat flat({64, 32});
    Reducer reducer(flat.comm, flat.parameters, {.bucket = bucket});
    reducer.complete({0, 32});
    EXPECT_THROW(reducer.complete({31, 8}), Error);
    EXPECT_THROW(reducer.complete(flat.group(0)), Error);
  }
}

TEST(RangeSet, JoinsWhatTouchesAndFindsGaps) {
  RangeSet set;
  set.add({10, 5});
  set.add({30, 5});
  set.add({15, 5});
  EXPECT_EQ(set.ranges(), (std::vector<FlatRange>{{10, 10}, {30, 5}}));
  EXPECT_EQ(set.gaps({5, 27}), (std::vector<FlatRange>{{5, 5}, {20, 10}}));
  set.add({20, 10});
  EXPECT_EQ(set.ranges(), (std::vector<FlatRange>{{10, 25}}));
  EXPECT_EQ(set.gaps({12, 3}), std::vector<FlatRange>{});
  EXPECT_EQ(set.gaps({0, 40}), (std::vector<FlatRange>{{0, 10}, {35, 5}}));
  for (const FlatRange overlapping : {FlatRange{34, 1}, {9, 2}, {0, 50}, {12, 3}})
    EXPECT_THROW(set.add(overlapping), Error);
}

}  // namespace
}  // namespace ssn
