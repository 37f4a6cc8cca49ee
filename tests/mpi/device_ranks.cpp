// Sums of GPU memory over the ranks, by NCCL or through the processors' memory (SSN_SUM). Skipped where the
// ranks have no GPU each.
#include <gtest/gtest.h>

#include <cstring>

#include "autograd/ops.h"
#include "autograd/reducer.h"
#include "runtime/arena.h"
#include "runtime/config.h"
#include "runtime/device_sum.h"
#include "runtime/error.h"
#include "runtime/flavour.h"
#include "runtime/graph.h"
#include "tests/mpi/ranks.h"

namespace ssn {
namespace {

class DeviceSums : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_gpus(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

/// Integers that floats hold exactly, different on every rank, at every index and in every round.
double integer(int rank, std::int64_t index, int round) {
  return static_cast<double>((index * 7 + rank * 131 + round * 17) % 4099 - 2048);
}

template <class T>
Tensor values(std::int64_t n, int round) {
  const Tensor t = Tensor::empty(Shape{n}, dtype_of<T>);
  for (std::int64_t i = 0; i < n; ++i) t.data<T>()[i] = static_cast<T>(integer(test_comm().rank(), i, round));
  return t;
}

/// The first element that is not `scale` times the sum over the ranks, −1 if there is none.
template <class T>
std::int64_t first_wrong(const Tensor& sum, int round, double scale = 1) {
  const Tensor host = sum.to(Device::cpu);
  for (std::int64_t i = 0; i < host.size(); ++i) {
    double expected = 0;
    for (int r = 0; r < test_comm().size(); ++r) expected += scale * integer(r, i, round);
    if (!(host.data<T>()[i] == static_cast<T>(expected))) return i;
  }
  return -1;
}

template <class T>
void sum_all_sizes() {
  Comm& comm = test_comm();
  for (const std::int64_t n : {0, 1, 33, 16384, 100003}) {
    const Tensor t = values<T>(n, 1).to(Device::cuda);
    const SumHandle handle = comm.start_sum(t);
    EXPECT_EQ(handle.bytes, comm.size() > 1 ? n * static_cast<std::int64_t>(sizeof(T)) : 0);
    comm.wait(handle);
    EXPECT_EQ(first_wrong<T>(t, 1), -1) << n;
  }
}
TEST_F(DeviceSums, AnySizeF32) {
  sum_all_sizes<float>();
}
TEST_F(DeviceSums, AnySizeF64) {
  sum_all_sizes<double>();
}

/// What was queued before is summed, what is queued after the wait sees the sums.
TEST_F(DeviceSums, LieBetweenTheWorkAroundThem) {
  constexpr std::int64_t n = 4096, kParts = 5;
  for (int round = 0; round < 3; ++round) {
    const Tensor given = values<float>(n * kParts, round).to(Device::cuda);
    const Tensor all = Tensor::zeros(Shape{n * kParts}, DType::f32, Device::cuda);
    for (std::int64_t part = 0; part < kParts; ++part) {
      const Tensor sum = all.slice(part * n, Shape{n});
      sum.copy_from(given.slice(part * n, Shape{n}));
      const Tensor doubled = add(Var::constant(sum), Var::constant(sum)).value();
      sum.copy_from(doubled);
      test_comm().start_sum(sum);
    }
    test_comm().wait_all();
    const Tensor later = add(Var::constant(all), Var::constant(all)).value();
    EXPECT_EQ(first_wrong<float>(all, round, 2), -1) << round;
    EXPECT_EQ(first_wrong<float>(later, round, 4), -1) << round;
  }
}

TEST_F(DeviceSums, HaveTheSameBitsOnAllRanksEveryTime) {
  Comm& comm = test_comm();
  constexpr std::int64_t n = 1000;
  std::vector<std::byte> first;
  for (int round = 0; round < 2; ++round) {
    const Tensor x = values<float>(n, 3);
    for (std::int64_t i = 0; i < n; ++i) x.data<float>()[i] /= static_cast<float>(3 + comm.rank());
    const Tensor t = x.to(Device::cuda);
    comm.wait(comm.start_sum(t));
    const Tensor host = t.to(Device::cpu);
    const std::vector<std::byte> all = comm.allgather(std::as_bytes(host.span<float>()));
    for (int r = 0; r < comm.size(); ++r)
      EXPECT_EQ(
          std::memcmp(all.data() + static_cast<std::size_t>(r) * host.bytes(), host.raw(), host.bytes()), 0);
    EXPECT_TRUE(round == 0 || all == first);
    first = all;
  }
}

/// Sums that are recorded, and what is queued around them.
struct RecordedParts {
  static constexpr std::int64_t kParts = 4;

  /// Sums `given` over the ranks in `kParts` parts; `twice` is twice that. `beside` is 3, from memory that
  /// what travelled may not have had before it was joined.
  void queue() const {
    const std::int64_t n = x.size() / kParts;
    std::vector<Tensor> others;
    for (std::int64_t part = 0; part < kParts; ++part) {
      const Tensor sum = x.slice(part * n, Shape{n});
      sum.copy_from(given.slice(part * n, Shape{n}));
      test_comm().start_sum(sum);
      others.push_back(Tensor::full(beside.shape(), 3, DType::f32, Device::cuda));
    }
    test_comm().join_sums();
    twice.copy_from(add(Var::constant(x), Var::constant(x)).value());
    beside.copy_from(others.front());
  }

  explicit RecordedParts(std::int64_t n)
      : given(Tensor::zeros({n}, DType::f32, Device::cuda)),
        x(given.clone()),
        twice(given.clone()),
        beside(Tensor::zeros({n / kParts / 2}, DType::f32, Device::cuda)) {}
  Tensor given, x, twice, beside;
};

/// Whether sums can be a part of what is recorded.
bool records_sums() {
  if constexpr (build::has_cuda) return can_record() && test_comm().sums_on(Device::cuda);
  return false;
}

TEST_F(DeviceSums, AreRepeatedWithTheWorkAroundThem) {
  if (!records_sums()) GTEST_SKIP() << "nothing is recorded";
  if constexpr (build::has_cuda) {
    Comm& comm = test_comm();
    constexpr std::int64_t n = 40000;
    const auto value = [](std::int64_t i, int rank, int round) {
      return static_cast<float>((i + round * 5 + rank) % 9 - 4);  // bf16 holds these, and their sums
    };
    for (const DType wire : {DType::f32, DType::bf16}) {
      if (!comm.set_wire(wire) && wire == DType::bf16) continue;
      const RecordedParts parts(n);
      comm.wait(comm.start_sum(parts.x));  // NCCL is started
      const Arena arena(Device::cuda);
      std::unique_ptr<Graph> graph;
      const Traffic before = comm.traffic().sum;
      const Traffic recorded = comm.record_sums([&] {
        const Arena::Use use(arena);
        graph = record([&] { parts.queue(); });
      });
      EXPECT_EQ(comm.traffic().sum.bytes, before.bytes) << "nothing was done";
      EXPECT_EQ(recorded.bytes, comm.size() > 1 ? comm.payload(n, DType::f32) : 0);
      for (int round = 0; round < 3; ++round) {
        const Tensor given = Tensor::empty({n}, DType::f32);
        for (std::int64_t i = 0; i < n; ++i) given.data<float>()[i] = value(i, comm.rank(), round);
        parts.given.copy_from(given.to(Device::cuda));
        graph->replay();
        comm.repeat_sums(recorded);
        comm.wait_all();
        const Tensor found = parts.twice.to(Device::cpu), beside = parts.beside.to(Device::cpu);
        for (std::int64_t i = 0; i < n; ++i) {
          float want = 0;
          for (int r = 0; r < comm.size(); ++r) want += value(i, r, round);
          ASSERT_EQ(found.data<float>()[i], 2 * want) << i << " in round " << round;
        }
        for (const float v : beside.span<float>()) ASSERT_EQ(v, 3) << round;
      }
      EXPECT_EQ(comm.traffic().sum.bytes, before.bytes + 3 * recorded.bytes);
      EXPECT_EQ(comm.traffic().sum.calls, before.calls + 3 * recorded.calls);
    }
    comm.set_wire(DType::f32);
  }
}

/// Every rank finds it out by itself, and sums go on afterwards.
TEST_F(DeviceSums, AreRefusedInARecordingThatDoesNotJoinThem) {
  Comm& comm = test_comm();
  if (!records_sums() || comm.size() == 1) GTEST_SKIP() << "nothing is recorded, or nothing summed";
  if constexpr (build::has_cuda) {
    const Tensor t = values<float>(1000, 1).to(Device::cuda), x = t.clone();
    comm.wait(comm.start_sum(x));
    const std::int64_t before = comm.traffic().sum.bytes;
    EXPECT_THROW(comm.record_sums([&] { record([&] { comm.start_sum(x); }); }), Error);
    EXPECT_EQ(comm.traffic().sum.bytes, before);
    comm.wait(comm.start_sum(t));
    EXPECT_EQ(first_wrong<float>(t, 1), -1);
  }
}

TEST_F(DeviceSums, SayWhatTheyAre) {
  Comm& comm = test_comm();
  const bool nccl = comm.size() > 1 && comm.sums_on(Device::cuda);
  const char* wanted = std::getenv("SSN_SUM");
  EXPECT_EQ(nccl, comm.size() > 1 && build::has_nccl && wanted == nullptr);
  EXPECT_EQ(comm.sums_beside(Device::cuda), nccl);
  EXPECT_EQ(comm.sums_as_tree(Device::cuda), !nccl);
}

TEST_F(DeviceSums, MixWithSumsOfTheProcessorsMemory) {
  Comm& comm = test_comm();
  const Tensor device = values<float>(5000, 1).to(Device::cuda), host = values<float>(7000, 2);
  comm.start_sum(device);
  comm.start_sum(host);
  comm.wait_all();
  EXPECT_EQ(first_wrong<float>(device, 1), -1);
  EXPECT_EQ(first_wrong<float>(host, 2), -1);
}

/// A step's gradient, a group and the rest, in buckets that hold one or both.
TEST_F(DeviceSums, OfAGradientInBuckets) {
  for (const std::int64_t bucket : {1, 1 << 20}) {
    Parameters parameters(DType::f32, Device::cuda);
    for (const auto& [name, section] : {std::pair{"g", Section::group}, {"b", Section::ordinary}})
      parameters.add(name, Shape{1000}, section, false, [](std::int64_t) { return 0.0; });
    parameters.build();
    Reducer reducer(test_comm(), parameters, {.bucket = bucket});
    for (int step = 0; step < 2; ++step) {
      for (const Parameters::Entry& e : parameters.entries()) {
        parameters.gradients()
            .slice(e.range.first, Shape{e.range.size})
            .copy_from(values<float>(e.range.size, step));
        if (e.section == Section::group) reducer.complete(e.range);
      }
      reducer.finish();
      EXPECT_EQ(reducer.not_finite(), std::nullopt);
      for (const Parameters::Entry& e : parameters.entries()) {
        const Tensor sum = parameters.gradients().slice(e.range.first, Shape{e.range.size});
        EXPECT_EQ(first_wrong<float>(sum, step), -1) << e.name << ", step " << step;
      }
    }
  }
}

/// NCCL itself, with what one GPU can show of it.
TEST_F(DeviceSums, OfOneRankByNccl) {
  if constexpr (build::has_nccl) {
    if (test_comm().size() > 1) return;
    const std::unique_ptr<DeviceSum> sum = make_nccl_sum(test_comm());
    const Tensor t = values<float>(100003, 1).to(Device::cuda);
    sum->start(t.raw(), t.size(), DType::f32, DType::f32);
    sum->wait();
    EXPECT_EQ(first_wrong<float>(t, 1), -1);
    const Tensor narrow = Tensor::full(Shape{1000}, 1 + 1.5 / 256, DType::f32, Device::cuda);
    sum->start(narrow.raw(), narrow.size(), DType::f32, DType::bf16);
    sum->wait();
    for (const float v : narrow.to(Device::cpu).span<float>()) ASSERT_EQ(v, 1 + 2.0f / 256);
    const Arena arena(Device::cuda);
    const auto graph = record([&] {
      const Arena::Use use(arena);
      t.fill(3);
      sum->start(t.raw(), t.size(), DType::f32, DType::f32);
      sum->join();
      t.fill(5);
      sum->start(narrow.raw(), narrow.size(), DType::f32, DType::bf16);
      sum->join();
    });
    EXPECT_EQ(first_wrong<float>(t, 1), -1) << "nothing is done while it is recorded";
    graph->replay();
    sum->wait();
    for (const float v : t.to(Device::cpu).span<float>()) ASSERT_EQ(v, 5);
  }
}

/// NCCL fails where one rank repeats a sum and the others queue theirs, and is ended though a graph holds it.
TEST_F(DeviceSums, EndAfterAnErrorOfNccl) {
  if (!build::cuda_on_host || !records_sums() || test_comm().size() == 1)
    GTEST_SKIP() << "only the double of NCCL finds this out";
  if constexpr (build::has_nccl) {
    const std::unique_ptr<DeviceSum> sum = make_nccl_sum(test_comm());
    const Tensor x = Tensor::zeros({1000}, DType::f32, Device::cuda);
    const auto start = [&] { sum->start(x.raw(), x.size(), DType::f32, DType::f32); };
    const auto graph = record([&] {
      start();
      sum->join();
    });
    const auto differ = [&] {
      if (test_comm().rank() == 0)
        graph->replay();
      else
        start();
      sum->wait();
    };
    EXPECT_THROW(differ(), Error);
    EXPECT_THROW(sum->wait(), Error);
    EXPECT_THROW(start(), Error);
  }
}

/// Where they do: not within a node.
TEST_F(DeviceSums, TravelAsBf16) {
  Comm& comm = test_comm();
  if (!comm.set_wire(DType::bf16)) return;
  const auto value = [](int rank, std::int64_t i) { return static_cast<float>((i + rank) % 9 - 4); };
  for (const std::int64_t n : {1, 4097, 70001}) {
    const Tensor x = Tensor::empty(Shape{n}, DType::f32);
    for (std::int64_t i = 0; i < n; ++i) x.data<float>()[i] = value(comm.rank(), i) * (1 + 1.0f / 1024);
    const Tensor t = x.to(Device::cuda);
    EXPECT_EQ(comm.start_sum(t).bytes, 2 * n);
    comm.wait_all();
    const Tensor host = t.to(Device::cpu);
    for (std::int64_t i = 0; i < n; ++i) {
      float expected = 0;  // of the rounded values, exact
      for (int r = 0; r < comm.size(); ++r) expected += value(r, i);
      ASSERT_EQ(host.data<float>()[i], expected) << i << " of " << n;
    }
  }
  comm.set_wire(DType::f32);
}

/// CUDA_VISIBLE_DEVICES says how many there are.
TEST(Devices, AreOneARankOrRefusedOnAllRanks) {
  if (!build::cuda_on_host) GTEST_SKIP() << "depends on the machine";
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string list = visible ? visible : "0";
  const auto devices = list.empty() ? 0 : 1 + std::count(list.begin(), list.end(), ',');
  const char* own = std::getenv("SSN_TEST_OWN_DEVICES");
  std::string message;
  try {
    test_comm().use_device(Device::cuda);
  } catch (const UsageError& e) {
    message = e.what();
  }
  if (own || devices >= test_comm().size())
    EXPECT_EQ(message, "");
  else if (devices == 0)
    EXPECT_NE(message.find("rank 0 sees no CUDA device"), std::string::npos) << message;
  else
    EXPECT_NE(message.find(fmt::format("ranks 0 and {} would share the CUDA device 0000:00:00.0: of their "
                                       "machine's devices they see {}.",
                                       devices, devices)),
              std::string::npos)
        << message;
}

}  // namespace
}  // namespace ssn
