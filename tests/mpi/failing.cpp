
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "runtime/binding.h"
#include "runtime/comm.h"
#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/graph.h"
#include "runtime/liveness.h"
#include "runtime/trace.h"

// A program that fails in the way its argument names; failures.sh looks at what comes out.
namespace ssn {
namespace {

using std::chrono::milliseconds;

/// What a rank does while the others go on to their sums.
void be_late(Comm& comm, std::string_view way) {
  constexpr std::array kWays = {"one sleeps",      "one loops",   "two stop",
                                "the first stops", "one is busy", "one computes"};
  if (std::ranges::find(kWays, way) == kWays.end()) return;
  comm.set_timeout(2);
  comm.barrier();
  if (way == "one sleeps" && comm.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  if (way == "one loops" && comm.rank() == 1) {
    for (volatile bool forever = true; forever;) {
    }
  }
  if (way == "two stop" && comm.rank() > 0) std::raise(SIGSTOP);
  if (way == "the first stops" && comm.rank() == 0) std::raise(SIGSTOP);
  if (way == "one is busy" && comm.rank() == 0) {
    const Busy busy("writes files");
    std::this_thread::sleep_for(milliseconds(3500));
  }
  for (int i = 0; i < 14 && way == "one computes" && comm.rank() == 2; ++i) {
    const Span span("a part of it");
    std::this_thread::sleep_for(milliseconds(250));
  }
}

/// On GPUs: all ranks but one repeat a sum that was recorded.
void repeat_sums(Comm& comm) {
  if constexpr (build::has_cuda) {
    comm.use_device(Device::cuda);
    const Tensor x = Tensor::zeros({1000}, DType::f32, Device::cuda);
    comm.wait(comm.start_sum(x));
    const auto graph = record([&] {
      comm.start_sum(x);
      comm.join_sums();
    });
    comm.set_timeout(2);
    for (int i = 0; i < 3; ++i) {
      if (i == 2 && comm.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
      graph->replay();
      comm.wait_all();
    }
  }
}

int body(Comm& comm, std::string_view way) {
  const Storage storage = comm.allocate(4000);
  const std::span data(static_cast<float*>(storage.data()), 1000);
  std::fill(data.begin(), data.end(), 1.0f);
  if (way == "none") return 0;
  if (way == "stopped") return 75;
  if (way == "usage on all") fail_usage("budget", "it is {}", -1);
  if (way == "error on all") fail("read", "no such file");
  if (way == "differently") fail("read", "file {} is missing", comm.rank() % 2);
  if (way == "one repeats no sum") repeat_sums(comm);
  be_late(comm, way);
  if (way == "one while others sum" && comm.rank() == 1) throw std::runtime_error("out of luck");
  if (way == "one before the end" && comm.rank() == 2) fail("write", "the disk is full");
  if (way == "one while others compute") {
    if (comm.rank() == 0) fail("write", "the disk is full");
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }
  if (way == "one dies" && comm.rank() == 1) std::abort();
  if (way != "one before the end") {
    for (int i = 0; i < 10; ++i) comm.wait(comm.start_sum(data));
  }
  if (way == "binding" && comm.rank() == 0)
    fmt::print("{}\n", choose_threads(find_placement(comm.local_size())).warning);
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int, char** argv) {
  return ssn::run_ranks([&](ssn::Comm& comm) { return ssn::body(comm, argv[1]); });
}
