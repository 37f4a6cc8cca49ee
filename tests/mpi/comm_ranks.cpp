#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>

#include "runtime/error.h"
#include "runtime/launcher.h"
#include "runtime/random.h"
#include "tests/mpi/ranks.h"

namespace ssn {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 31, 33, 127, 129, 65536, 65537, 1000003};

/// The ranks whose values are added in their order before anything travels, a list a node; what these give is
/// added in this order too. One list where all share memory.
std::vector<std::vector<int>> nodes() {
  const std::string text = test_comm().text();
  const bool window = text.ends_with("summed in shared memory"), levels = text.find("between") != text.npos;
  const int each = window ? test_comm().size() : levels ? ranks_per_node() : 1;
  std::vector<std::vector<int>> all;
  for (int r = 0; r < test_comm().size(); ++r) {
    if (r % each == 0) all.emplace_back();
    all.back().push_back(r);
  }
  return all;
}
bool sums_in_window() {
  return test_comm().size() > 1 && nodes().size() == 1;
}

/// Integers that floats hold exactly, different on every rank, at every index and in every round.
template <class T>
T integer(int rank, std::int64_t index, int round) {
  return static_cast<T>((index * 7 + rank * 131 + round * 17) % 4099 - 2048);
}

template <class T>
void fill(std::span<T> data, int round) {
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = integer<T>(test_comm().rank(), static_cast<std::int64_t>(i), round);
}

/// The index of the first element that is not the sum over the ranks, −1 if there is none.
template <class T>
std::int64_t first_wrong(std::span<const T> data, int round) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    T expected = 0;
    for (int r = 0; r < test_comm().size(); ++r)
      expected += integer<T>(r, static_cast<std::int64_t>(i), round);
    if (!(data[i] == expected)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

template <class T>
class Sum : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Sum, Types);

TYPED_TEST(Sum, AllocatedMemoryAnySizeAnyOffset) {
  Comm& comm = test_comm();
  constexpr std::int64_t kGuard = 64;
  const Storage storage = comm.allocate((kSizes[8] + kGuard) * sizeof(TypeParam));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(storage.data()) % 256, 0u);
  auto* all = static_cast<TypeParam*>(storage.data());
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t offset : {0, 3, 32}) {
      std::fill_n(all, n + kGuard, TypeParam(-1));
      const std::span data(all + offset, static_cast<std::size_t>(n));
      fill(data, 1);
      comm.wait(comm.start_sum(data));
      EXPECT_EQ(first_wrong<TypeParam>(data, 1), -1) << n << " elements at " << offset;
      for (std::int64_t i = 0; i < offset; ++i) ASSERT_EQ(all[i], TypeParam(-1)) << n << " at " << offset;
      for (std::int64_t i = offset + n; i < n + kGuard; ++i)
        ASSERT_EQ(all[i], TypeParam(-1)) << n << " at " << offset;
    }
  }
}

TYPED_TEST(Sum, AnyMemory) {
  for (const std::int64_t n : kSizes) {
    std::vector<TypeParam> data(static_cast<std::size_t>(n) + 1, TypeParam(-1));
    const std::span<TypeParam> part(data.data(), static_cast<std::size_t>(n));
    fill(part, 2);
    test_comm().wait(test_comm().start_sum(part));
    EXPECT_EQ(first_wrong<TypeParam>(part, 2), -1) << n;
    EXPECT_EQ(data.back(), TypeParam(-1)) << n;
  }
}

TYPED_TEST(Sum, ManyRoundsOverTheSameMemory) {
  const Tensor t =
      Tensor::over(test_comm().allocate(1031 * sizeof(TypeParam)), Shape{1031}, dtype_of<TypeParam>);
  for (int round = 0; round < 200; ++round) {
    fill(t.span<TypeParam>(), round);
    test_comm().start_sum(t);
    test_comm().wait_all();
    ASSERT_EQ(first_wrong<TypeParam>(t.span<TypeParam>(), round), -1) << "round " << round;
  }
}

TYPED_TEST(Sum, ManyAtOnce) {
  constexpr std::int64_t kPart = 70001, kParts = 12;
  const Storage a = test_comm().allocate(kPart * kParts * sizeof(TypeParam)),
                b = test_comm().allocate(kPart * kParts * sizeof(TypeParam));
  std::vector<TypeParam> other(kPart);
  const auto part = [&](std::int64_t i) {
    auto* all = static_cast<TypeParam*>((i % 3 == 1 ? b : a).data());
    return i == 4 ? std::span(other) : std::span(all + i * kPart, kPart);
  };
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < kParts; ++i) {
      fill(part(i), round + i);
      test_comm().start_sum(part(i));
    }
    test_comm().wait_all();
    for (int i = 0; i < kParts; ++i) ASSERT_EQ(first_wrong<TypeParam>(part(i), round + i), -1) << i;
  }
}

/// Not exact in T, of many sizes and both signs; rounded before anything is added.
template <class T>
[[gnu::noinline]] T real(int rank, std::int64_t i) {
  const Random random(7, static_cast<std::uint64_t>(rank));
  const auto at = static_cast<std::uint64_t>(2 * i);
  return static_cast<T>((random.uniform(at) - 0.5) * std::exp2(20 * random.uniform(at + 1)));
}

template <class T>
void expect_the_same_everywhere(std::span<const T> data) {
  const std::vector<std::byte> all = test_comm().allgather(std::as_bytes(data));
  for (int r = 0; r < test_comm().size(); ++r)
    EXPECT_EQ(std::memcmp(all.data() + r * data.size_bytes(), data.data(), data.size_bytes()), 0) << r;
}

/// Of the values of [first, last), added as a binary tree.
template <class T, class F>
T tree(std::size_t first, std::size_t last, const F& value) {
  if (last - first == 1) return value(first);
  std::size_t half = 1;
  while (2 * half < last - first) half *= 2;
  return tree<T>(first, first + half, value) + tree<T>(first + half, last, value);
}

/// Of what the ranks of a node have.
template <class T>
T tree_of(const std::vector<int>& ranks, std::int64_t i) {
  return tree<T>(0, ranks.size(), [&](std::size_t r) { return real<T>(ranks[r], i); });
}

TYPED_TEST(Sum, AddsAsABinaryTreeWithTheSameBitsEverywhere) {
  Comm& comm = test_comm();
  constexpr std::int64_t n = 100007;
  const Storage storage = comm.allocate(n * sizeof(TypeParam));
  const std::span data(static_cast<TypeParam*>(storage.data()), n);
  for (std::int64_t i = 0; i < n; ++i) data[i] = real<TypeParam>(comm.rank(), i);
  comm.wait(comm.start_sum(data));
  expect_the_same_everywhere<TypeParam>(data);
  const std::vector<std::vector<int>> all = nodes();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto of_node = [&](std::size_t node) { return tree_of<TypeParam>(all[node], i); };
    ASSERT_EQ(data[i], tree<TypeParam>(0, all.size(), of_node)) << i;
    const auto of_rank = [&](std::size_t rank) { return real<TypeParam>(static_cast<int>(rank), i); };
    if (comm.sums_as_tree()) {
      ASSERT_EQ(data[i], tree<TypeParam>(0, static_cast<std::size_t>(comm.size()), of_rank)) << i;
    }
  }
}

/// While it lives, bf16 travels, where anything does.
struct AsBf16 {
  bool possible = test_comm().set_wire(DType::bf16);
  ~AsBf16() { test_comm().set_wire(DType::f32); }
};

TEST(Bf16, TravelsBetweenNodesOnly) {
  Comm& comm = test_comm();
  const AsBf16 wire;
  EXPECT_EQ(wire.possible, nodes().size() > 1);
  EXPECT_EQ(comm.text().ends_with("as bf16"), wire.possible) << comm.text();
  EXPECT_EQ(comm.payload(10, DType::f32), wire.possible ? 20 : 40);
  EXPECT_EQ(comm.payload(10, DType::f64), 80);
  const std::int64_t before = comm.traffic().sum.bytes;
  std::vector<float> data(1000);
  const std::int64_t sent = comm.size() > 1 ? comm.payload(1000, DType::f32) : 0;
  EXPECT_EQ(comm.start_sum(data).bytes, sent);
  comm.wait_all();
  EXPECT_EQ(comm.traffic().sum.bytes - before, sent);
  std::vector<double> doubles(1000);
  fill(std::span(doubles), 3);
  comm.wait(comm.start_sum(doubles));
  EXPECT_EQ(first_wrong<double>(doubles, 3), -1) << "f64 travels as f64";
}

/// The nodes' values (in plain memory: the ranks') rounded, added in f32, rounded.
float sum_as_bf16(const std::vector<std::vector<int>>& nodes, std::int64_t i) {
  const auto rounded = [&](std::size_t node) { return float{bf16(tree_of<float>(nodes[node], i))}; };
  return bf16(tree<float>(0, nodes.size(), rounded));
}

TEST(Bf16, AddsRoundedValuesInF32WithTheSameBitsEverywhere) {
  Comm& comm = test_comm();
  const AsBf16 wire;
  if (!wire.possible) return;
  std::vector<std::vector<int>> each;
  for (int r = 0; r < comm.size(); ++r) each.push_back({r});
  for (const std::int64_t n : {1, 33, 131072, 300001}) {
    const Storage storage = comm.allocate(static_cast<std::size_t>(n) * 4);
    std::vector<float> plain(static_cast<std::size_t>(n));
    const std::span shared(static_cast<float*>(storage.data()), static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) shared[i] = plain[i] = real<float>(comm.rank(), i);
    comm.start_sum(shared);
    comm.start_sum(plain);
    comm.wait_all();
    expect_the_same_everywhere<float>(shared);
    expect_the_same_everywhere<float>(plain);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(shared[i], sum_as_bf16(nodes(), i)) << i << " of " << n;
      ASSERT_EQ(plain[i], sum_as_bf16(each, i)) << i << " of " << n;
    }
  }
}

TEST(Bf16, ErrsAsLittleAsItsBoundSays) {
  Comm& comm = test_comm();
  const AsBf16 wire;
  if (!wire.possible) return;
  constexpr std::int64_t n = 50000;
  std::vector<float> data(n);
  for (std::int64_t i = 0; i < n; ++i) data[i] = real<float>(comm.rank(), i);
  comm.wait(comm.start_sum(data));
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    double exact = 0, sizes = 0;
    for (int r = 0; r < comm.size(); ++r) {
      exact += double{real<float>(r, i)};
      sizes += std::abs(double{real<float>(r, i)});
    }
    ASSERT_LE(std::abs(data[i] - exact), std::exp2(-8) * (sizes + std::abs(data[i])) * 1.01) << i;
    error += std::pow(data[i] - exact, 2);
    norm += exact * exact;
  }
  const double relative = std::sqrt(error / norm);
  EXPECT_LT(relative, 3e-3);
  EXPECT_GT(relative, 1e-3) << "was it rounded?";
  if (comm.rank() == 0)
    fmt::print("relative error of {} ranks' sum as bf16: {:.5f}\n", comm.size(), relative);
}

TEST(Bf16, InfinitiesAndNansArrive) {
  Comm& comm = test_comm();
  const AsBf16 wire;
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> data = {1, 0, 0, 0};
  if (comm.rank() == comm.size() - 1) data = {1, inf, std::nanf(""), 3.4e38F};
  comm.wait(comm.start_sum(data));
  EXPECT_EQ(data[0], static_cast<float>(comm.size()));
  EXPECT_EQ(data[1], inf);
  EXPECT_TRUE(std::isnan(data[2]));
  EXPECT_EQ(data[3], wire.possible ? inf : 3.4e38F) << "beyond bf16's largest";
}

TEST(Bf16, RanksThatDoNotAgreeAreFoundOut) {
  Comm& comm = test_comm();
  if (comm.size() == 1) return;
  EXPECT_THROW(comm.set_wire(comm.rank() == 0 ? DType::f32 : DType::bf16), UsageError);
  std::vector<float> data(100);
  fill(std::span(data), 0);
  comm.wait(comm.start_sum(data));
  EXPECT_EQ(first_wrong<float>(data, 0), -1) << "it goes on with f32";
}

TEST(Traffic, CountsWhatARankHandsOver) {
  Comm& comm = test_comm();
  const bool several = comm.size() > 1;
  const CommTraffic before = comm.traffic();
  const Storage storage = comm.allocate(1000 * sizeof(float));
  const std::span data(static_cast<float*>(storage.data()), 1000);
  fill(data, 0);
  EXPECT_EQ(comm.start_sum(data.first(700)).bytes, several ? 2800 : 0);
  comm.start_sum(data.subspan(700));
  comm.wait_all();
  EXPECT_EQ(comm.traffic().sum.bytes - before.sum.bytes, several ? 4000 : 0);
  EXPECT_EQ(comm.traffic().sum.calls - before.sum.calls, several ? 2 : 0);
  EXPECT_EQ(comm.traffic().control.bytes, before.control.bytes) << "a sum is no control traffic";
  comm.agree(1);
  EXPECT_EQ(comm.traffic().control.bytes - before.control.bytes, several ? 4 : 0);
  EXPECT_EQ(comm.traffic().other.bytes, before.other.bytes);
  comm.sum_in_rank_order(1.0);
  comm.broadcast(std::as_writable_bytes(data));
  EXPECT_EQ(comm.traffic().other.bytes - before.other.bytes, several ? 8 + 4000 : 0);
  EXPECT_EQ(comm.traffic().sum.bytes - before.sum.bytes, several ? 4000 : 0);
}

TEST(Collectives, BroadcastFromEveryRank) {
  Comm& comm = test_comm();
  for (int root = 0; root < comm.size(); ++root) {
    for (const std::int64_t n : kSizes) {
      const Tensor t = Tensor::full(Shape{n}, comm.rank() == root ? 10 + root : -1, DType::f32);
      comm.broadcast(t, root);
      for (const float v : t.span<float>())
        ASSERT_EQ(v, static_cast<float>(10 + root)) << "root " << root << ", " << n;
    }
    std::string text =
        comm.rank() == root ? std::string(static_cast<std::size_t>(root) * 1000 + 1, 'x') : "another";
    comm.broadcast(text, root);
    EXPECT_EQ(text, std::string(static_cast<std::size_t>(root) * 1000 + 1, 'x'));
  }
}

TEST(Collectives, Gather) {
  Comm& comm = test_comm();
  const std::vector<int> all = comm.allgather(100 + comm.rank());
  ASSERT_EQ(all.size(), static_cast<std::size_t>(comm.size()));
  for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], 100 + r);
  const std::vector<std::byte> mine(7, static_cast<std::byte>(comm.rank() + 1));
  const std::vector<std::byte> gathered = comm.gather(mine);
  ASSERT_EQ(gathered.size(), comm.rank() == 0 ? 7u * static_cast<unsigned>(comm.size()) : 0u);
  for (std::size_t i = 0; i < gathered.size(); ++i)
    EXPECT_EQ(gathered[i], static_cast<std::byte>(i / 7 + 1)) << i;
}

TEST(Collectives, SumInRankOrder) {
  Comm& comm = test_comm();
  const auto value = [](int rank) { return rank == 0 ? 1e16 : rank == 1 ? -1.0 : rank == 2 ? -1e16 : 0.1; };
  double expected = value(0);
  for (int r = 1; r < comm.size(); ++r) expected += value(r);
  EXPECT_EQ(comm.sum_in_rank_order(value(comm.rank())), expected);
  std::vector<double> values = {static_cast<double>(comm.rank()), value(comm.rank()), 1};
  comm.sum_in_rank_order(values);
  EXPECT_EQ(values, (std::vector<double>{comm.size() * (comm.size() - 1) / 2.0, expected,
                                         static_cast<double>(comm.size())}));
}

TEST(Collectives, Agree) {
  Comm& comm = test_comm();
  for (int r = 0; r < comm.size(); ++r) {
    EXPECT_TRUE(comm.agree(comm.rank() == r));
    EXPECT_EQ(comm.agree(1u << comm.rank()), (1u << comm.size()) - 1);
  }
  EXPECT_FALSE(comm.agree(false));
}

/// Processor seconds of this process so far.
double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

TEST(Collectives, IdleBarrierWaitsWithoutWork) {
  Comm& comm = test_comm();
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  const double before = processor_seconds();
  if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  comm.idle_barrier();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(comm.size() > 1 ? 200 : 0));
  EXPECT_LT(processor_seconds() - before, 0.2);
}

/// Resident shared memory of this process in bytes.
std::int64_t shared_bytes() {
  std::ifstream status("/proc/self/statm");
  std::int64_t size = 0, resident = 0, shared = 0;
  status >> size >> resident >> shared;
  return shared * 4096;
}

TEST(Allocate, DroppedMemoryIsGivenBack) {
  Comm& comm = test_comm();
  constexpr std::size_t bytes = 2 << 20;
  std::int64_t early = 0;
  for (int round = 0; round < 20; ++round) {
    const Storage a = comm.allocate(bytes), b = comm.allocate(bytes);
    std::memset(a.data(), round, bytes);
    std::memset(b.data(), round, bytes);
    comm.wait(comm.start_sum(std::span(static_cast<float*>(a.data()), bytes / 4)));
    if (round == 4) early = shared_bytes();
  }
  EXPECT_LT(shared_bytes(), early + 4 * static_cast<std::int64_t>(bytes));
}

TEST(Sum, RanksThatDoNotAgreeAreFoundOut) {
  Comm& comm = test_comm();
  if (!sums_in_window()) return;  // MPI has its own ways
  const Storage storage = comm.allocate(400);
  const std::span data(static_cast<float*>(storage.data()), 100);
  fill(data, 0);
  EXPECT_THROW(comm.start_sum(data.first(comm.rank() == 0 ? 99 : 100)), Error);
  EXPECT_THROW(comm.start_sum(data.subspan(comm.rank() == 0 ? 1 : 0, 50)), Error);
  comm.wait(comm.start_sum(data));
  EXPECT_EQ(first_wrong<float>(data, 0), -1) << "it goes on after that";
}

}  // namespace
}  // namespace ssn
