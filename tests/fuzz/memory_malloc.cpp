#include <malloc.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>

#include "fuzz/memory.h"

// In place of the C library's functions, which stay there under other names.
using ssn::fuzz::note_allocation;

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

static void* counted(void* p) {
  if (p) note_allocation(static_cast<std::ptrdiff_t>(malloc_usable_size(p)));
  return p;
}

void* malloc(size_t bytes) {
  return counted(__libc_malloc(bytes));
}
void* calloc(size_t count, size_t bytes) {
  return counted(__libc_calloc(count, bytes));
}
void* memalign(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}
int posix_memalign(void** p, size_t alignment, size_t bytes) {
  *p = memalign(alignment, bytes);
  return *p ? 0 : ENOMEM;
}
void free(void* p) {
  if (p) note_allocation(-static_cast<std::ptrdiff_t>(malloc_usable_size(p)));
  __libc_free(p);
}
void* realloc(void* p, size_t bytes) {
  const auto before = p ? static_cast<std::ptrdiff_t>(malloc_usable_size(p)) : 0;
  void* const moved = __libc_realloc(p, bytes);
  if (moved || bytes == 0) note_allocation(-before);
  return counted(moved);
}
}

void ssn::fuzz::count_allocations() {
  pthread_atfork(nullptr, nullptr, [] { g_limit = PTRDIFF_MAX; });
}
