#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime/error.h"
#include "tests/mpi/ranks.h"

// main for tests under mpirun: rank 0 reports, the others print their failures only; a watchdog names a hang.
namespace ssn {
namespace {

Comm* g_comm = nullptr;

/// Ends the process, and so the run, when a test has taken too long: a collective that some rank did not
/// call.
class Watchdog : public testing::EmptyTestEventListener {
 public:
  static constexpr std::chrono::seconds kLimit{150};

  void OnTestStart(const testing::TestInfo& info) override {
    set(fmt::format("{}.{}", info.test_suite_name(), info.name()));
  }
  void OnTestEnd(const testing::TestInfo&) override { set(""); }

 private:
  void set(const std::string& name) {
    const std::lock_guard lock(mutex_);
    test_ = name;
    start_ = std::chrono::steady_clock::now();
  }
  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, stop, std::chrono::milliseconds(200), [] { return false; }) &&
           !stop.stop_requested()) {
      if (test_.empty() || std::chrono::steady_clock::now() - start_ < kLimit) continue;
      fmt::print(stderr, "rank {} of {} hangs in {}\n", g_comm->rank(), g_comm->size(), test_);
      std::_Exit(3);
    }
  }
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::string test_;
  std::chrono::steady_clock::time_point start_;
  std::jthread thread_{[this](const std::stop_token& stop) { watch(stop); }};
};

/// Prints failures with the rank.
class Failures : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& r) override {
    if (!r.failed()) return;
    fmt::print(stderr, "rank {}: {}:{}: {}\n", g_comm->rank(), r.file_name() ? r.file_name() : "",
               r.line_number(), r.message());
  }
};

int run_tests(Comm& comm) {
  g_comm = &comm;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (comm.rank() == 0)
    fmt::print("{}\n", comm.text());
  else {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  listeners.Append(new Watchdog);
  return RUN_ALL_TESTS();
}

}  // namespace

Comm& test_comm() {
  return *g_comm;
}

std::string missing_gpus() {
  try {
    test_comm().use_device(Device::cuda);
    return {};
  } catch (const UsageError& error) {  // on all ranks
    return error.what();
  }
}

}  // namespace ssn

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return ssn::run_ranks(ssn::run_tests);
}
