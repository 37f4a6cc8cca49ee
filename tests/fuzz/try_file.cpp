#include <sys/time.h>

#include <filesystem>

#include "fuzz/memory.h"
#include "fuzz/target.h"
#include "runtime/error.h"

namespace ssn::fuzz {
namespace {

constexpr std::ptrdiff_t kLeast = 16 << 20;
constexpr int kSeconds = 5;

/// SIGPROF ends the program.
void limit_computing(int seconds) {
  const itimerval timer{.it_interval = {0, 0}, .it_value = {seconds, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

}  // namespace

bool try_file(const Target& target, const std::string& file) {
  const auto size = static_cast<std::ptrdiff_t>(std::filesystem::file_size(file) * target.factor);
  limit_computing(kSeconds);
  g_most = g_allocated.load();
  g_limit = g_allocated + kLeast + size;
  bool accepted = true;
  try {
    target.read(file);
  } catch (const Error&) {
    accepted = false;
  }
  g_limit = PTRDIFF_MAX;
  limit_computing(0);
  return accepted;
}

}  // namespace ssn::fuzz
