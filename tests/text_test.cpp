#include "runtime/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace ssn {
namespace {

const std::vector<std::string> kNames = {"momentum", "mapping", "epochs", "seed", "batch"};

TEST(Text, FindsTheNearestName) {
  EXPECT_EQ(nearest_name("epoch", kNames), "epochs");       // one left out
  EXPECT_EQ(nearest_name("seeed", kNames), "seed");         // one too many
  EXPECT_EQ(nearest_name("betch", kNames), "batch");        // one replaced
  EXPECT_EQ(nearest_name("btach", kNames), "batch");        // two swapped
  EXPECT_EQ(nearest_name("MOMENTUM", kNames), "momentum");  // case
  EXPECT_EQ(nearest_name("mapings", kNames), "mapping");
}

TEST(Text, SuggestsNothingFarAway) {
  EXPECT_EQ(nearest_name("learning-rate", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("seed", {}), "");
  EXPECT_EQ(suggestion("sed", kNames), "did you mean 'seed'?");
  EXPECT_EQ(suggestion("xyz", kNames), "known: momentum, mapping, epochs, seed, batch");
}

}  // namespace
}  // namespace ssn
