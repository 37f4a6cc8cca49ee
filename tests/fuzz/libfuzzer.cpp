// The same readers under libFuzzer, which looks for inputs that reach new code:
//   SSN_FUZZ_TARGET=npz build-fuzzer/tests/fuzz/libfuzzer CORPUS tests/fuzz/seeds/npz [-max_total_time=60]
// New inputs are kept in the directory CORPUS. What is wrong for a reader ends the program, as in fuzz.cpp.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fuzz/memory.h"
#include "fuzz/target.h"
#include "runtime/error.h"
#include "runtime/log.h"

namespace ssn::fuzz {
namespace {

const Target& wanted_target() {
  const char* const name = std::getenv("SSN_FUZZ_TARGET");
  const auto all = targets();
  const auto found = std::ranges::find(all, std::string(name ? name : ""), &Target::name);
  if (found == all.end()) {
    fmt::print(stderr, "libfuzzer: expected the name of a reader in SSN_FUZZ_TARGET, found '{}'; there are",
               name ? name : "");
    for (const Target& target : all) fmt::print(stderr, " {}", target.name);
    fmt::print(stderr, "\n");
    std::exit(2);
  }
  return *found;
}

/// In memory where the system has such a directory: it is written for each input.
std::string scratch_file() {
  const std::filesystem::path shared = "/dev/shm";
  const auto directory =
      std::filesystem::is_directory(shared) ? shared : std::filesystem::temp_directory_path();
  return directory / fmt::format("ssn-fuzz-{}", ::getpid());
}

}  // namespace
}  // namespace ssn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ssn::fuzz;
  static const Target& target = []() -> const Target& {
    ssn::set_log({.rank = 0, .quiet = true});
    count_allocations();
    return wanted_target();
  }();
  static const std::string file = scratch_file();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try_file(target, file);
  std::filesystem::remove(file);
  return 0;
}
