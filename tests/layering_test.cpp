#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "runtime/config.h"

// Dependencies between the folders point one way: runtime ← kernels ← autograd ← layers ← ssn ← tools;
// datasets uses runtime and kernels. hdf5.h and mpi.h have one includer each, OpenMP pragmas one file,
// kernels are started in one place.
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = fs::path(ssn::build::source_data_dir).parent_path();

const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"runtime", {"runtime"}},
    {"kernels", {"kernels", "runtime"}},
    {"autograd", {"autograd", "kernels", "runtime"}},
    {"layers", {"layers", "autograd", "kernels", "runtime"}},
    {"ssn", {"ssn", "layers", "autograd", "kernels", "runtime"}},
    {"datasets", {"datasets", "kernels", "runtime"}},
    {"tools", {"tools", "ssn", "layers", "autograd", "kernels", "runtime", "datasets"}},
};

template <class F>
void for_each_line(const std::set<std::string>& folders, F&& f) {
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
      std::ifstream file(entry.path());
      std::string line;
      for (int number = 1; std::getline(file, line); ++number)
        f(fs::relative(entry.path(), kRoot).string(), folder, line, number);
    }
}

std::set<std::string> code_folders() {
  std::set<std::string> folders;
  for (const auto& [folder, unused] : kMayInclude) folders.insert(folder);
  return folders;
}

TEST(Layering, includes_point_one_way) {
  const std::regex include("^\\s*#\\s*include\\s*\"([a-z_]+)/.*");
  int seen = 0;
  for_each_line(code_folders(),
                [&](const std::string& path, const std::string& folder, const std::string& line, int number) {
                  std::smatch match;
                  if (!std::regex_match(line, match, include)) return;
                  ++seen;
                  EXPECT_TRUE(kMayInclude.at(folder).contains(match[1]))
                      << path << ":" << number << ": " << folder << " must not use " << match[1];
                });
  EXPECT_GT(seen, 100);
}

TEST(Layering, what_has_one_place_only) {
  const auto only_in = [](const std::string& pattern, const std::set<std::string>& allowed) {
    const std::regex what(pattern);
    std::set<std::string> found;
    for_each_line(code_folders(),
                  [&](const std::string& path, const std::string&, const std::string& line, int) {
                    if (std::regex_search(line, what)) found.insert(path);
                  });
    for (const std::string& path : found) EXPECT_TRUE(allowed.contains(path)) << path << " has " << pattern;
    EXPECT_FALSE(found.empty()) << pattern << " is nowhere: is this test still looking in the right place?";
  };
  only_in("#\\s*include <hdf5", {"runtime/hdf5_file.cpp"});
  only_in("#\\s*include <mpi", {"runtime/mpi_check.h"});
  only_in("#\\s*include <nccl", {"runtime/cuda/nccl_sum.cpp", "runtime/cuda/late/nccl.cpp"});
  only_in("\\bdlopen\\(", {"runtime/late_library.cpp"});
  only_in("#\\s*pragma omp parallel", {"runtime/parallel.h"});
  // The last two: what is an instruction of its own on a GPU.
  only_in("^\\s*#\\s*(if|ifdef|ifndef)\\b",
          {"runtime/hd.h", "runtime/cuda/launch.cuh", "runtime/bf16.h", "kernels/cuda/mma.cuh"});
}

TEST(Layering, no_kernel_start_outside_launch) {
  for_each_line(code_folders(),
                [&](const std::string& path, const std::string&, const std::string& line, int number) {
                  EXPECT_EQ(line.find("<<<"), std::string::npos)
                      << path << ":" << number << ": start kernels through launch()";
                });
}

TEST(Layering, files_stay_readable) {
  std::map<std::string, int> lines;
  std::set<std::string> folders = code_folders();
  folders.insert({"tests", "perf"});
  for_each_line(folders,
                [&](const std::string& path, const std::string&, const std::string& line, int number) {
                  lines[path] = number;
                  EXPECT_LE(line.size(), 160u) << path << ":" << number << ": clang-format the file";
                });
  for (const auto& [path, count] : lines) EXPECT_LE(count, 600) << path << " is too long: one topic a file";
}

}  // namespace
