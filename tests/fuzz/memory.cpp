#include "fuzz/memory.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace ssn::fuzz {

void note_allocation(std::ptrdiff_t bytes) {
  const std::ptrdiff_t now = g_allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > g_most.load(std::memory_order_relaxed)) g_most.store(now, std::memory_order_relaxed);
  if (bytes <= 0 || now <= g_limit.load(std::memory_order_relaxed)) return;
  constexpr std::string_view kText = "fuzz: more memory than the reader may have\n";
  static_cast<void>(!::write(STDERR_FILENO, kText.data(), kText.size()));
  std::abort();
}

}  // namespace ssn::fuzz
