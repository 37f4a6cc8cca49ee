// A trace of all ranks, on one clock.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/trace_file.h"
#include "tests/mpi/ranks.h"

namespace ssn {
namespace {

TEST(Trace, ClocksOfOneMachineAgree) {
  Comm& comm = test_comm();
  const ClockOffset clock = comm.clock_offset();
  EXPECT_LE(std::abs(clock.add), clock.error + 1);
  EXPECT_EQ(clock.error == 0, comm.rank() == 0);
}

/// Ranks whose clocks are apart work one after another, and so they do in the file.
TEST(Trace, AllRanksAreInOneFile) {
  Comm& comm = test_comm();
  start_trace();
  for (int r = 0; r < comm.size(); ++r) {
    comm.barrier();
    if (r == comm.rank()) Span span("turn", 4 * r);
  }
  Trace trace = stop_trace();
  const std::int64_t ahead = 1'000'000'000LL * comm.rank();
  for (TraceEvent& e : trace.events) e.begin += ahead, e.end += ahead;
  ClockOffset clock = comm.clock_offset();
  clock.add -= ahead;
  std::string path = std::filesystem::temp_directory_path() / fmt::format("trace_ranks_{}.json", getpid());
  comm.broadcast(path);
  const TraceWritten written = write_trace(comm, path, std::move(trace), clock);
  EXPECT_EQ(written.events, static_cast<std::size_t>(comm.size()));
  if (comm.rank() > 0) return;
  const auto file = nlohmann::json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  std::map<int, double> begins;
  for (const auto& event : file["traceEvents"]) {
    if (event["ph"] != "X") continue;
    begins[event["pid"]] = event["ts"];
    EXPECT_EQ(event.value("/args/bytes"_json_pointer, 0), 4 * event["pid"].get<int>());
  }
  ASSERT_EQ(std::ssize(begins), comm.size());
  const std::vector<double> errors = file["otherData"]["clock_error_us"];  // each towards rank 0's clock
  for (int r = 1; r < comm.size(); ++r) {
    const double error = errors[static_cast<std::size_t>(r)];
    EXPECT_GT(begins[r] + error + errors[static_cast<std::size_t>(r - 1)], begins[r - 1]);
    EXPECT_LT(begins[r], 1e6) << "the second between the clocks is gone";
    EXPECT_NEAR(file["otherData"]["clock_offset_us"][static_cast<std::size_t>(r)], -1e6 * r, error + 1);
  }
}

}  // namespace
}  // namespace ssn
