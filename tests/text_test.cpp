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

TEST(Text, KnowsUtf8) {
  for (const char* text :
       {"", "plain", "Zürich", "€", "日本", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\x7f"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\x80", "a\xff", "\xfe", "\xc3", "\xe2\x82", "\xe2\x82z", "\xc3z", "\xc0\xaf",
                           "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << text;
}

}  // namespace
}  // namespace ssn
