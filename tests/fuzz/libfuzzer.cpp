#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "fuzz/memory.h"
#include "fuzz/target.h"
#include "runtime/error.h"
#include "runtime/log.h"

// The reader SSN_FUZZ_TARGET, as libFuzzer calls it.

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ssn::set_log({.rank = 0, .quiet = true});
  ssn::fuzz::count_allocations();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace fuzz = ssn::fuzz;
  static const fuzz::Target& target =
      *std::ranges::find(fuzz::targets(), SSN_FUZZ_TARGET, &fuzz::Target::name);
  static const auto file = std::filesystem::current_path() / ("fuzz-" SSN_FUZZ_TARGET);
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fuzz::try_file(target, file.string());
  return 0;
}
