// Sums over the ranks, by size and way, in the columns of nccl-tests:
//   mpirun -n 4 --bind-to none bench_allreduce --max 268435456
// mpi: MPI_Allreduce in place, one call. pieces: what training does between nodes with one rank each.
// window: what it does on one node. hierarchical: what it does on several nodes with several ranks each
// (SSN_RANKS_PER_NODE=2 takes two ranks of a machine for a node). pieces-bf16, hierarchical-bf16: with
// --wire bf16; where all share memory, SSN_SUM=allreduce lets it travel. With --device cuda, of GPU memory:
// nccl; host, through the processors' memory, with SSN_SUM or without NCCL. Bandwidths are 10^9 bytes a
// second; algbw = bytes / time, busbw = algbw · 2(n − 1)/n, which a ring sends and receives. A time is the
// slowest rank's; the median over the repetitions. #wrong counts, over all ranks, elements that are not the
// sum, which is exact.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "runtime/comm.h"
#include "runtime/error.h"
#include "runtime/options.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {

struct Settings {
  std::string ways = "all", device = "cpu";
  std::int64_t min = 4, max = 256 << 20, factor = 4;
  double seconds = 0.3;
  bool json = false;
};

/// False: --help was asked for.
bool parse(const std::vector<std::string>& arguments, Settings& s) {
  constexpr double kMost = 1e12;
  Options options("bench_allreduce", "Times sums over the ranks.",
                  "mpirun -n 4 --bind-to none bench_allreduce --max 268435456");
  options
      .add("ways", s.ways, "NAME", "of summing",
           {"all", "mpi", "pieces", "pieces-bf16", "window", "hierarchical", "hierarchical-bf16", "nccl",
            "nccl-bf16", "host", "host-bf16"})
      .add("device", s.device, "NAME", "whose memory is summed", {"cpu", "cuda"})
      .add("min", s.min, "BYTES", "smallest size", between(4, kMost))
      .add("max", s.max, "BYTES", "largest size", between(4, kMost))
      .add("factor", s.factor, "N", "between sizes", between(2, 1 << 20))
      .add("seconds", s.seconds, "S", "for a size, about", above(0))
      .add("json", s.json, "one JSON object a line");
  if (options.parse(arguments)) return true;
  fmt::print("{}", options.help());
  return false;
}

/// Integers; bf16 holds exactly their sums over up to 128 ranks.
float value(int rank, std::int64_t index) {
  return static_cast<float>((index * 7 + rank * 131) % 5 - 2);
}
void fill(int rank, std::span<float> data) {
  parallel_for(std::ssize(data), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) data[static_cast<std::size_t>(i)] = value(rank, i);
  });
}
std::int64_t wrong(const Comm& comm, std::span<const float> data) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < std::ssize(data); ++i) {
    float expected = 0;
    for (int r = 0; r < comm.size(); ++r) expected += value(r, i);
    count += !(data[static_cast<std::size_t>(i)] == expected);
  }
  return count;
}

struct Way {
  std::string name;
  Storage storage;
  std::function<void(const Tensor&)> sum;
  DType wire = DType::f32;
};

void sum_by_mpi(const Tensor& tensor) {
  const std::span data = tensor.span<float>();
  check_usage(data.size() <= 1u << 30, "bench_allreduce",
              "--ways mpi: one call takes at most 4 GiB: lower --max");
  const int code = MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
  check(code == MPI_SUCCESS, "bench_allreduce", "MPI_Allreduce failed");
}

/// What this run can do; all of it, unless one is wanted.
std::vector<Way> ways_of(Comm& comm, const Settings& s) {
  const auto bytes = static_cast<std::size_t>(s.max);
  const auto ours = [&](const Tensor& data) { comm.wait(comm.start_sum(data)); };
  const bool travels = comm.set_wire(DType::f32), levels = comm.text().find("between") != std::string::npos;
  std::vector<Way> ways;
  if (s.device == "cuda") {
    comm.use_device(Device::cuda);
    const std::string name = comm.sums_on(Device::cuda) ? "nccl" : "host";
    const Storage memory = Storage::allocate(Device::cuda, bytes);
    ways = {{name, memory, ours}};
    if (travels) ways.push_back({name + "-bf16", memory, ours, DType::bf16});
  } else {
    const Storage plain = Storage::allocate(Device::cpu, bytes), shared = comm.allocate(bytes);
    ways = {{"mpi", plain, sum_by_mpi}, {"pieces", plain, ours}};
    if (travels) ways.push_back({"pieces-bf16", plain, ours, DType::bf16});
    if (!travels) ways.push_back({"window", shared, ours});
    if (levels) ways.push_back({"hierarchical", shared, ours});
    if (levels) ways.push_back({"hierarchical-bf16", shared, ours, DType::bf16});
  }
  if (s.ways != "all") std::erase_if(ways, [&](const Way& way) { return way.name != s.ways; });
  check_usage(!ways.empty(), "bench_allreduce", "--ways {} is not what {} do with --device {}", s.ways,
              comm.text(), s.device);
  return ways;
}

struct Result {
  double seconds;
  std::int64_t repetitions, wrong;
};

Result measure(Comm& comm, const Way& way, std::int64_t bytes, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Shape shape{bytes / 4};
  const Tensor data = Tensor::over(way.storage, shape, DType::f32);
  const bool on_device = data.device() != Device::cpu;
  const Tensor values = on_device ? Tensor::empty(shape, DType::f32) : data;
  constexpr std::size_t kWarmUp = 2, kLeast = 5, kMost = 1000;
  std::vector<double> times;
  double total = 0;
  comm.set_wire(way.wire);
  while (times.size() < kWarmUp + kLeast || (total < seconds && times.size() < kWarmUp + kMost)) {
    fill(comm.rank(), values.span<float>());
    if (on_device) data.copy_from(values);
    comm.barrier();
    const auto start = Clock::now();
    way.sum(data);
    const std::vector<double> all =
        comm.allgather(std::chrono::duration<double>(Clock::now() - start).count());
    times.push_back(*std::max_element(all.begin(), all.end()));
    total += times.back();
  }
  times.erase(times.begin(), times.begin() + kWarmUp);
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  const Tensor sums = data.to(Device::cpu);
  const auto bad =
      static_cast<std::int64_t>(comm.sum_in_rank_order(static_cast<double>(wrong(comm, sums.span<float>()))));
  return {times[times.size() / 2], std::ssize(times), bad};
}

void print(const Settings& s, const Comm& comm, const Way& way, std::int64_t bytes, const Result& r) {
  const double algorithm = static_cast<double>(bytes) / r.seconds / 1e9;
  const double bus = algorithm * 2 * (comm.size() - 1) / comm.size();
  if (s.json)
    fmt::print("{}\n", nlohmann::ordered_json({{"way", way.name},
                                               {"ranks", comm.size()},
                                               {"bytes", bytes},
                                               {"seconds", r.seconds},
                                               {"algbw", algorithm},
                                               {"busbw", bus},
                                               {"repetitions", r.repetitions},
                                               {"wrong", r.wrong}})
                           .dump());
  else
    fmt::print("{:>12} {:>12} {:>7} {:>5} {:>17} {:>10.1f} {:>8.2f} {:>8.2f} {:>7} {:>6}\n", bytes, bytes / 4,
               "float", "sum", way.name, 1e6 * r.seconds, algorithm, bus, r.repetitions, r.wrong);
  std::fflush(stdout);
}

int run(Comm& comm, const std::vector<std::string>& arguments) {
  Settings s;
  if (!parse(arguments, s)) return 0;
  check_usage(s.min <= s.max, "bench_allreduce", "--min {} is more than --max {}", s.min, s.max);
  check_usage(comm.size() > 1, "bench_allreduce",
              "one rank has nothing to sum: start several, as by mpirun -n 2 --bind-to none bench_allreduce");
  if (comm.rank() == 0 && !s.json)
    fmt::print("# {}, {} threads each\n{:>12} {:>12} {:>7} {:>5} {:>17} {:>10} {:>8} {:>8} {:>7} {:>6}\n",
               s.device == "cpu" ? comm.text() : fmt::format("{} ranks, GPU memory", comm.size()),
               num_threads(), "# size (B)", "count", "type", "op", "way", "time (us)", "algbw", "busbw",
               "times", "#wrong");
  std::int64_t all_wrong = 0;
  const std::vector<Way> ways = ways_of(comm, s);
  for (std::int64_t bytes = s.min / 4 * 4; bytes <= s.max; bytes *= s.factor)
    for (const Way& way : ways) {
      const Result result = measure(comm, way, bytes, s.seconds);
      if (comm.rank() == 0) print(s, comm, way, bytes, result);
      all_wrong += result.wrong;
    }
  check(all_wrong == 0, "bench_allreduce", "{} elements are not the sum over the ranks", all_wrong);
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  return ssn::run_ranks([&](ssn::Comm& comm) { return ssn::run(comm, {argv + 1, argv + argc}); });
}
