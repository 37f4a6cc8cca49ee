// Log, progress and trace.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/progress.h"
#include "runtime/trace_file.h"

namespace ssn {
namespace {

std::string stderr_of(const std::function<void()>& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { set_log({}); }
};

TEST_F(LogTest, InfoIsOfRankZeroAndNotQuiet) {
  EXPECT_EQ(stderr_of([] { info("a {}", 1); }), "a 1\n");
  set_log({.quiet = true});
  EXPECT_EQ(stderr_of([] { info("a"); }), "");
  EXPECT_EQ(stderr_of([] { warn("b"); }), "warning: b\n");
  set_log({.rank = 2});
  EXPECT_EQ(stderr_of([] { info("a"); }), "");
  EXPECT_EQ(stderr_of([] { warn("b"); }), "warning: rank 2: b\n");
}

TEST_F(LogTest, AFullDiskLosesMessagesOnly) {
  const int kept = dup(STDERR_FILENO), full = open("/dev/full", O_WRONLY);
  ASSERT_GE(kept, 0);
  ASSERT_GE(full, 0);
  dup2(full, STDERR_FILENO);
  EXPECT_NO_THROW(warn("lost"));
  EXPECT_NO_THROW(write_stderr("lost"));
  dup2(kept, STDERR_FILENO);
  close(full), close(kept);
  EXPECT_EQ(stderr_of([] { info("seen"); }), "seen\n");
}

TEST_F(LogTest, LinesGoAboveTheLiveLine) {
  EXPECT_EQ(stderr_of([] {
              set_live_line("50%");
              info("note");
              set_live_line("");
              info("after");
            }),
            "\r\x1b[K50%\r\x1b[Knote\n50%\r\x1b[Kafter\n");
}

TEST_F(LogTest, ProgressInAFileIsALineAnEpoch) {
  const std::string out = stderr_of([] {
    Progress progress(2, 3);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < 3; ++step) progress.step(0.5, 32);
      progress.end_epoch("loss 0.5");
    }
  });
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2) << out;
  EXPECT_EQ(out.find("epoch 1/2  loss 0.5  "), 0U) << out;
  EXPECT_NE(out.find("\nepoch 2/2  loss 0.5  "), std::string::npos) << out;
  EXPECT_NE(out.find("samples/s"), std::string::npos) << out;
  EXPECT_NE(out.rfind("0 s left\n"), std::string::npos) << out;
  set_log({.rank = 1});
  EXPECT_EQ(stderr_of([] {
              Progress progress(1, 1);
              progress.step(0.5, 32);
              progress.end_epoch("loss 0.5");
            }),
            "");
}

TEST(Text, DurationsAndNumbers) {
  EXPECT_EQ(duration_text(7.6), "8 s");
  EXPECT_EQ(duration_text(59.7), "1:00");
  EXPECT_EQ(duration_text(187), "3:07");
  EXPECT_EQ(duration_text(3765), "1:02:45");
  EXPECT_EQ(duration_text(-1), "0 s");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
}

class TraceTest : public testing::Test {
 protected:
  ~TraceTest() override { std::filesystem::remove(path_); }
  TraceWritten write(Trace trace, std::size_t max_events = kTraceFileEvents) {
    return write_trace(comm_, path_, std::move(trace), {}, max_events);
  }
  nlohmann::json read() const { return nlohmann::json::parse(std::ifstream(path_)); }
  SoloComm comm_;
  std::string path_ =
      std::filesystem::temp_directory_path() / ("trace_test_" + std::to_string(getpid()) + ".json");
};

TEST_F(TraceTest, WritesSpansOfAllThreads) {
  { Span before("before"); }
  start_trace();
  {
    Span outer("outer \"quoted\"", 12);
    std::jthread([] {
      name_thread("worker");
      Span inner("inner");
    });
    std::jthread([] {
      name_thread("worker");
      Span later("later");
    });
  }
  const TraceWritten written = write(stop_trace());
  { Span after("after"); }
  EXPECT_EQ(written.events, 3U);
  EXPECT_EQ(written.dropped, 0U);
  std::map<std::string, nlohmann::json> events, tracks;
  const nlohmann::json file = read();
  for (const auto& event : file["traceEvents"]) {
    if (event["ph"] == "X") events[event["name"]] = event;
    if (event["name"] == "thread_name") tracks[event["args"]["name"]] = event["tid"];
  }
  const nlohmann::json &outer = events["outer \"quoted\""], &inner = events["inner"];
  EXPECT_EQ(outer["args"]["bytes"], 12);
  EXPECT_EQ(outer["ts"], 0) << "the first";
  EXPECT_EQ(outer["pid"], 0);
  EXPECT_EQ(outer["tid"], tracks["compute"]);
  EXPECT_EQ(inner["tid"], tracks["worker"]);
  EXPECT_EQ(events["later"]["tid"], tracks["worker"]);
  EXPECT_NE(outer["tid"], inner["tid"]);
  EXPECT_LE(outer["ts"], inner["ts"]);
  EXPECT_GE(outer["ts"].get<double>() + outer["dur"].get<double>(),
            inner["ts"].get<double>() + inner["dur"].get<double>());
}

TEST_F(TraceTest, DropsWhatIsTooMuchAndSaysSo) {
  start_trace(10);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 9; ++i) Span span("work");
    });
  }
  threads.clear();
  const TraceWritten written = write(stop_trace(), 6);
  EXPECT_EQ(written.events, 6U);
  EXPECT_EQ(written.dropped, 21U);
  EXPECT_EQ(read()["otherData"]["dropped"], 21);
  start_trace();
  EXPECT_EQ(write(stop_trace()).events, 0U);
}

TEST_F(TraceTest, UnwritableFileIsAnError) {
  EXPECT_THROW(write_trace(comm_, "/nonexistent/trace.json", {}, {}), Error);
}

}  // namespace
}  // namespace ssn
