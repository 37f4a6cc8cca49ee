// Log, progress, trace and the trial in a child process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/checkpoint.h"
#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/flavour.h"
#include "runtime/log.h"
#include "runtime/progress.h"
#include "runtime/trace_file.h"
#include "runtime/trial.h"

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

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string trial(const std::function<void()>& read) {
  return error_of([&] { try_in_child("file.h5", read, 1); });
}

TEST(Trial, WhatTheChildDoesIsLost) {
  int here = 0;
  EXPECT_EQ(trial([&] { here = 1; }), "");
  EXPECT_EQ(here, 0);
  EXPECT_EQ(trial([] { fail("read", "file.h5: damaged"); }), "[read] file.h5: damaged");
  EXPECT_EQ(trial([] { throw std::runtime_error("any"); }), "any");
}

TEST(Trial, SaysWhatTheChildDiedOf) {
  EXPECT_NE(trial([] { std::raise(SIGSEGV); }).find("crashed the library (Segmentation fault)"),
            std::string::npos);
  EXPECT_NE(trial([] { std::abort(); }).find("file.h5: it is damaged"), std::string::npos);
  EXPECT_NE(trial([] {
              for (std::atomic<int> i = 0;; ++i) {
              }
            }).find("took more than 1 s"),
            std::string::npos);
  const auto greedy = [] { std::vector<char>(std::size_t{1} << 30, 'x'); };
  if (build::exact_allocation) return;  // sanitizers have no limit of memory
  EXPECT_NE(trial(greedy).find("needed more than 256 MiB"), std::string::npos);
}

TEST(Trial, ThreadsMayTryAtATime) {
  if (build::exact_allocation) GTEST_SKIP() << "a sanitizer's own locks do not outlive a fork";
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] { EXPECT_EQ(trial([] { fail("read", "no"); }), "[read] no"); });
}

TEST(Trial, ForeignHdf5) {
  const std::string seeds = std::string(build::source_data_dir) + "/../tests/fuzz/seeds/hdf5/";
  const auto says = [&](const char* file, const std::string& part) {
    const std::string message = error_of([&] { load_hdf5(seeds + file); });
    EXPECT_NE(message.find(seeds + file), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  EXPECT_EQ(load_hdf5(seeds + "old.h5").tensor("a/b/weight").shape(), (Shape{3, 5}));
  EXPECT_EQ(load_hdf5(seeds + "new.h5").attribute<std::string>("vlen"), "größer");
  says("links.h5", "/out is an external link");
  says("cycle.h5", "/g/again");
  says("external.h5", "cannot read /a: its data lie in other files");
  says("virtual.h5", "cannot read /v: its data lie in other files");
  says("absurd.h5", "cannot read /huge: a chunk has 4194304 bytes");
  says("types.h5", "cannot read /c: its type");
}

}  // namespace
}  // namespace ssn
