#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/memory.h"
#include "fuzz/mutator.h"
#include "fuzz/target.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace ssn::fuzz {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) files.push_back(entry.path());
  std::ranges::sort(files);
  check(!files.empty(), "fuzz", "{}: there are no files in it to begin with", directory.string());
  return files;
}

struct Settings {
  std::string target = "all", seeds = SSN_SEEDS, out = ".", file;
  std::int64_t files = 100, first = 0, seed = 0;
};

/// Of all files of a target that were tried.
class Tally {
 public:
  void add(const Target& target, const fs::path& file) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const std::ptrdiff_t before = g_allocated;
    accepted_ += try_file(target, file.string());
    ++files_;
    slowest_ = std::max(slowest_, std::chrono::duration<double>(Clock::now() - begin).count());
    most_ = std::max(most_, g_most - before);
  }
  std::string text() const {
    return fmt::format("{:>7} files: {:>6} read, {:>6} refused; slowest {:.3f} s, most memory {:.1f} MiB",
                       files_, accepted_, files_ - accepted_, slowest_,
                       static_cast<double>(most_) / (1 << 20));
  }

 private:
  std::int64_t files_ = 0, accepted_ = 0;
  double slowest_ = 0;
  std::ptrdiff_t most_ = 0;
};

/// The seeds, then damaged files made of them. Each lies in the directory `out` while it is read: a file that
/// ends the program is found there.
void run(const Target& target, const Settings& settings) {
  std::vector<std::string> seeds;
  Tally tally;
  for (const fs::path& file : files_in(fs::path(settings.seeds) / target.name)) {
    tally.add(target, file);
    seeds.push_back(bytes_of(file));
  }
  Mutator mutator(seeds, static_cast<std::uint64_t>(settings.seed), target.name);
  const fs::path directory = fs::path(settings.out) / ("fuzz-" + target.name);
  fs::create_directories(directory);
  for (std::int64_t i = settings.first; i < settings.first + settings.files; ++i) {
    const std::string bytes = mutator.file(i);
    std::ofstream(directory / "file", std::ios::binary) << bytes;
    tally.add(target, directory / "file");
  }
  fs::remove_all(directory);
  fmt::print("{:<14} {}\n", target.name, tally.text());
  std::fflush(stdout);
}

void fuzz(const std::vector<std::string>& arguments) {
  Settings s;
  Options options("fuzz", "Reads damaged files, with each of the readers.",
                  "fuzz --target idx --files 100000");
  options.add("target", s.target, "NAME", "the reader")
      .add("files", s.files, "N", "damaged files for each", between(0, 1 << 30))
      .add("first", s.first, "N", "the number of the first", between(0, 1 << 30))
      .add("seed", s.seed, "N", "of the damage")
      .add("seeds", s.seeds, "DIR", "whole files, in a directory for each reader")
      .add("out", s.out, "DIR", "where the damaged files are written, one after another")
      .add("file", s.file, "FILE", "read this file alone");
  if (!options.parse(arguments)) return fmt::print("{}", options.help());
  set_log({.rank = 0, .quiet = true});
  count_allocations();
  for (const Target& target : targets()) {
    if (s.target != "all" && s.target != target.name) continue;
    if (s.file.empty())
      run(target, s);
    else
      target.read(s.file);
  }
}

}  // namespace
}  // namespace ssn::fuzz

int main(int argc, char** argv) {
  try {
    ssn::fuzz::fuzz({argv + 1, argv + argc});
  } catch (const ssn::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
