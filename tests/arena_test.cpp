// Memory that is kept for work that is repeated.
#include "runtime/arena.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/config.h"
#include "runtime/tensor.h"

namespace ssn::test {
namespace {

constexpr std::size_t kBytes = 12345;

/// The places of blocks that are given back at once.
std::set<const void*> places(int count) {
  std::vector<Storage> storages;
  std::set<const void*> found;
  for (int i = 0; i < count; ++i)
    found.insert(storages.emplace_back(Storage::allocate(Device::cpu, kBytes)).data());
  return found;
}

TEST(Arena, KeepsItsBlocksForItsUsers) {
  const std::size_t before = pool_stats(Device::cpu).held;
  {
    const Arena arena(Device::cpu);
    std::set<const void*> first, again;
    {
      const Arena::Use use(arena);
      first = places(3);
    }
    EXPECT_GE(pool_stats(Device::cpu).held, before + 3 * kBytes);
    for (const void* place : places(20)) EXPECT_FALSE(first.contains(place));
    {
      const Arena::Use use(arena);
      again = places(3);
    }
    EXPECT_EQ(again, first);
  }
  trim_pool(Device::cpu);
  EXPECT_LE(pool_stats(Device::cpu).held, before);
}

TEST(Arena, LivesAsLongAsItsStorages) {
  Tensor x;
  {
    const Arena arena(Device::cpu);
    const Arena::Use use(arena);
    x = Tensor::full({100}, 3, DType::f32);
  }
  EXPECT_EQ(x.span<float>()[99], 3);
}

}  // namespace
}  // namespace ssn::test
