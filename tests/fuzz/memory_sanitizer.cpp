#include <pthread.h>

#include "fuzz/memory.h"

// Of the sanitizer's interface; g++ comes without its header.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, std::size_t),
                                              void (*released)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* p);

/// The HDF5 library itself loses a little memory over damaged files.
const char* __lsan_default_suppressions() {
  return "leak:libhdf5\n";
}
const char* __lsan_default_options() {
  return "print_suppressions=0";
}
}

void ssn::fuzz::count_allocations() {
  pthread_atfork(nullptr, nullptr, [] { g_limit = PTRDIFF_MAX; });
  __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t bytes) { note_allocation(static_cast<std::ptrdiff_t>(bytes)); },
      [](const volatile void* p) {
        if (p) note_allocation(-static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(p)));
      });
}
