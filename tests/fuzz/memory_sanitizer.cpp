#include <pthread.h>
#include <sanitizer/allocator_interface.h>

#include "fuzz/memory.h"

void ssn::fuzz::count_allocations() {
  pthread_atfork(nullptr, nullptr, [] { g_limit = PTRDIFF_MAX; });
  __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t bytes) { note_allocation(static_cast<std::ptrdiff_t>(bytes)); },
      [](const volatile void* p) {
        if (p)
          note_allocation(-static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(const_cast<void*>(p))));
      });
}
