// How fast a checkpoint is written, against a raw write with fsync of as many bytes in the same directory;
// and one that is written while the training goes on: how long the training pauses, how much slower its steps
// are meanwhile. All in turns.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/error.h"
#include "runtime/options.h"
#include "runtime/parallel.h"
#include "tools/training/saver.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Work in the caches of all threads, some 10 ms long, as most of a step is.
void work(std::vector<float>& values) {
  parallel_for(std::ssize(values), 1024, [&](std::int64_t begin, std::int64_t end) {
    for (int turn = 0; turn < 400; ++turn)
      for (std::int64_t i = begin; i < end; ++i) {
        float& x = values[static_cast<std::size_t>(i)];
        x = std::fma(x, 0.999f, 0.001f);
      }
  });
}

void write_raw(const std::string& path, const Tensor& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  check(fd >= 0, "bench", "{}: cannot create it", path);
  const char* at = static_cast<const char*>(bytes.raw());
  for (std::size_t left = bytes.bytes(); left > 0;) {
    const ssize_t n = ::write(fd, at, std::min<std::size_t>(left, 8 << 20));
    check(n > 0, "bench", "{}: cannot write it", path);
    at += n;
    left -= static_cast<std::size_t>(n);
  }
  check(::fsync(fd) == 0, "bench", "{}: cannot write it to disk", path);
  ::close(fd);
}

/// Parameters and the optimizer's state of a network, in tensors of 1 to 8 MB.
Archive archive_of(double megabytes) {
  Archive archive;
  auto left = static_cast<std::int64_t>(megabytes * 1e6 / 4);
  for (int i = 0; left > 0; ++i) {
    const std::int64_t size = std::min<std::int64_t>(left, (std::int64_t{1} << 18) << (i % 4));
    archive.tensors[fmt::format("parameters/layer{}", i)] = Tensor::full({size}, i, DType::f32);
    left -= size;
  }
  return archive;
}

struct Times {
  double raw = 0, alone = 0;                // nothing beside it
  double pause = 0, write = 0, slower = 0;  // beside the training
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// `step`: seconds of one without a save.
Times one_turn(Saver& saver, const Archive& archive, const Tensor& bytes, const std::string& raw, double step,
               std::int64_t turn, std::vector<float>& values) {
  Times times;
  auto start = Clock::now();
  write_raw(raw, bytes);
  times.raw = seconds_since(start);
  fs::remove(raw);
  start = Clock::now();
  save_checkpoint(raw, archive);
  times.alone = seconds_since(start);
  fs::remove(raw);
  start = Clock::now();
  saver.save(archive, turn, false);
  times.pause = seconds_since(start);
  start = Clock::now();
  std::int64_t steps = 0;
  while (times.write == 0) {
    work(values);
    ++steps;
    if (const SaveTimes done = saver.take_times(); done.count > 0) times.write = done.write_seconds;
  }
  times.slower = std::max(0.0, seconds_since(start) - step * static_cast<double>(steps));
  return times;
}

int run(const std::vector<std::string>& arguments) {
  std::string directory = ".";
  double megabytes = 300;
  std::int64_t turns = 7, threads = 0;
  Options options("bench_checkpoint", "Times a checkpoint that is written while training goes on.");
  options.section("Options")
      .add("dir", directory, "DIR", "where to write")
      .add("size", megabytes, "MB", "of the checkpoint", between(1, 1e6))
      .add("turns", turns, "N", "a save and a raw write each", between(1, 1000))
      .add("threads", threads, "N", "of the training; 0: all cores", between(0, kMostThreads));
  if (!options.parse(arguments)) return fmt::print("{}", options.help()), 0;
  if (threads > 0) set_num_threads(static_cast<int>(threads));
  SoloComm comm;
  const std::string path = directory + "/bench_checkpoint";
  const RunDirectory run_directory(
      comm, {.path = path, .resume = {}, .network = {}, .mapping = {}, .overwrite = true});
  const Archive archive = archive_of(megabytes);
  const Tensor bytes = Tensor::full({static_cast<std::int64_t>(megabytes * 1e6)}, 1, DType::u8);
  std::vector<float> values(1 << 16, 1.0f);
  std::vector<double> steps, pauses, writes, raws, alone, slower;
  for (int i = 0; i < 100; ++i) {
    const auto start = Clock::now();
    work(values);
    steps.push_back(seconds_since(start));
  }
  const double step = median(steps);
  Saver saver(run_directory, {});
  for (std::int64_t turn = 0; turn <= turns; ++turn) {
    const Times times = one_turn(saver, archive, bytes, path + "/raw", step, turn, values);
    if (turn == 0) continue;  // takes memory for the copy
    pauses.push_back(times.pause);
    writes.push_back(times.write);
    raws.push_back(times.raw);
    alone.push_back(times.alone);
    slower.push_back(times.slower);
  }
  fmt::print("{:.0f} MB, {} threads, medians of {} turns (least)\n", megabytes, num_threads(), turns);
  const auto print = [&](const char* what, const std::vector<double>& seconds, const std::string& text) {
    fmt::print("{:<26} {:7.3f} s ({:.3f})  {}\n", what, median(seconds), *std::ranges::min_element(seconds),
               text);
  };
  const auto rate = [&](const std::vector<double>& seconds) { return megabytes / median(seconds); };
  const auto share = [&](const std::vector<double>& seconds) {
    return fmt::format("{:.1f}% of the write", 100 * median(seconds) / median(writes));
  };
  print("raw write with fsync", raws, fmt::format("{:.0f} MB/s", rate(raws)));
  print("checkpoint", alone,
        fmt::format("{:.0f} MB/s, {:.0f}% of the raw write's", rate(alone), 100 * rate(alone) / rate(raws)));
  print("beside the training", writes, fmt::format("{:.0f} MB/s", rate(writes)));
  print("pause of the training", pauses, share(pauses));
  print("slower steps meanwhile", slower, share(slower));
  fs::remove_all(path);
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  try {
    return ssn::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
