#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/checkpoint.h"
#include "tests/close.h"
#include "tools/commands.h"

// Training runs of a few steps, through the command line.
namespace ssn::test {

/// A directory that goes away with it.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / fmt::format("ssn_{}_{}", name, getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Where these runs compute: SSN_TEST_DEVICE, or the CPU.
inline std::string test_device() {
  const char* device = std::getenv("SSN_TEST_DEVICE");
  return device ? device : "cpu";
}

/// A small network and small images: 50 samples in 4 steps of 12 an epoch, 3 epochs.
inline Arguments small_run(const Arguments& more) {
  Arguments all = {
      "--quiet", "--threads", "1",        "--model",  "wrn-10-1",   "--data", "synthetic:1x7x6x3x50",
      "--batch", "12",        "--epochs", "3",        "--budget",   "30%",    "--crop",
      "1",       "--seed",    "5",        "--device", test_device()};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// What a command prints.
inline std::string output_of(int (*command)(Comm&, const Arguments&), const Arguments& arguments,
                             int expected_code = 0) {
  SoloComm comm;
  testing::internal::CaptureStdout();
  int code = -1;
  try {
    code = command(comm, arguments);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  EXPECT_EQ(code, expected_code);
  return testing::internal::GetCapturedStdout();
}
inline nlohmann::json train_small(const Arguments& more) {
  Arguments all = small_run(more);
  all.emplace_back("--json");
  return nlohmann::json::parse(output_of(train, all));
}

/// The message of the UsageError that a command ends with.
inline std::string refusal(int (*command)(Comm&, const Arguments&), const Arguments& arguments) {
  try {
    output_of(command, arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}
inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

/// Whether two checkpoints are, bit by bit, the same but for the command that each says was given.
inline testing::AssertionResult same_but_for_the_command(const std::string& left, const std::string& right) {
  Archive a = load_checkpoint(left), b = load_checkpoint(right);
  for (Archive* archive : {&a, &b})
    if (archive->attributes.erase("command") != 1)
      return testing::AssertionFailure() << archive->path << " has no command";
  if (a.attributes != b.attributes) return testing::AssertionFailure() << "attributes differ";
  if (a.tensors.size() != b.tensors.size()) return testing::AssertionFailure() << "other tensors";
  for (const auto& [name, tensor] : a.tensors)
    if (const auto same = same_bits(tensor, b.tensor(name)); !same)
      return testing::AssertionFailure() << name << ": " << same.message();
  return testing::AssertionSuccess();
}

}  // namespace ssn::test
