// What -fsanitize=thread calls, in place of libtsan.
#include <cstdint>
#include <cstring>

#include "tests/cuda_on_host/race_access.h"

using cuda_on_host::check_access;
#define CALLER __builtin_return_address(0)

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define HOOKS(N)                                 \
  void __tsan_read##N(void* p) {                 \
    check_access({p, N, CALLER, false, false});  \
  }                                              \
  void __tsan_write##N(void* p) {                \
    check_access({p, N, CALLER, true, false});   \
  }                                              \
  void __tsan_read_write##N(void* p) {           \
    check_access({p, N, CALLER, true, false});   \
  }                                              \
  void __tsan_unaligned_read##N(void* p) {       \
    check_access({p, N, CALLER, false, false});  \
  }                                              \
  void __tsan_unaligned_write##N(void* p) {      \
    check_access({p, N, CALLER, true, false});   \
  }                                              \
  void __tsan_unaligned_read_write##N(void* p) { \
    check_access({p, N, CALLER, true, false});   \
  }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* p, std::size_t n) {
  check_access({p, n, CALLER, false, false});
}
void __tsan_write_range(void* p, std::size_t n) {
  check_access({p, n, CALLER, true, false});
}

void* __tsan_memcpy(void* to, const void* from, std::size_t n) {
  check_access({from, n, CALLER, false, false});
  check_access({to, n, CALLER, true, false});
  return std::memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, std::size_t n) {
  check_access({from, n, CALLER, false, false});
  check_access({to, n, CALLER, true, false});
  return std::memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, std::size_t n) {
  check_access({to, n, CALLER, true, false});
  return std::memset(to, value, n);
}

// Atomics of host code that lies in a .cu file (guards of static variables, reference counts): just the
// operation.
#define ATOMICS(BITS, T)                                                                           \
  T __tsan_atomic##BITS##_load(const volatile T* p, int) {                                         \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##BITS##_store(volatile T* p, T v, int) {                                      \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  T __tsan_atomic##BITS##_exchange(volatile T* p, T v, int) {                                      \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  T __tsan_atomic##BITS##_fetch_add(volatile T* p, T v, int) {                                     \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  T __tsan_atomic##BITS##_fetch_sub(volatile T* p, T v, int) {                                     \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {   \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* p, T* expected, T v, int, int) {     \
    return __atomic_compare_exchange_n(p, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }
ATOMICS(8, std::uint8_t)
ATOMICS(16, std::uint16_t)
ATOMICS(32, std::uint32_t)
ATOMICS(64, std::uint64_t)
}
