#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <numeric>
#include <thread>

#include "runtime/error.h"
#include "runtime/random.h"
#include "tests/mpi/ranks.h"

namespace ssn {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 31, 33, 127, 129, 65536, 65537, 1000003};

bool sums_in_window() {
  return test_comm().text().ends_with("summed in shared memory");
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

TYPED_TEST(Sum, AddsInTheOrderOfTheRanksWithTheSameBitsEverywhere) {
  Comm& comm = test_comm();
  constexpr std::int64_t n = 10007;
  const auto value = [](int rank, std::int64_t i) {
    return static_cast<TypeParam>(
        Random(7, static_cast<std::uint64_t>(rank)).uniform(static_cast<std::uint64_t>(i)));
  };
  const Storage storage = comm.allocate(n * sizeof(TypeParam));
  const std::span data(static_cast<TypeParam*>(storage.data()), n);
  for (std::int64_t i = 0; i < n; ++i) data[i] = value(comm.rank(), i);
  comm.wait(comm.start_sum(data));
  if (sums_in_window()) {
    for (std::int64_t i = 0; i < n; ++i) {
      TypeParam expected = value(0, i);
      for (int r = 1; r < comm.size(); ++r) expected += value(r, i);
      ASSERT_EQ(data[i], expected) << i;
    }
  }
  const std::vector<std::byte> all = comm.allgather(std::as_bytes(data));
  for (int r = 0; r < comm.size(); ++r)
    EXPECT_EQ(std::memcmp(all.data() + r * data.size_bytes(), data.data(), data.size_bytes()), 0) << r;
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
  if (!sums_in_window()) return;  // MPI_Allreduce has its own ways
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
