#include "tests/cuda_on_host/shared_memory.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "tests/cuda_on_host/block.h"

namespace cuda_on_host {
namespace {

constexpr int kFill = 0xFF;

struct Range {
  char *begin, *end;
};
Range g_dynamic{};

/// Adds the sections of a loaded object that hold `__shared__` variables.
int add_sections(dl_phdr_info* object, std::size_t, void* ranges) {
  const bool program = !object->dlpi_name || !*object->dlpi_name;
  const int file = open(program ? "/proc/self/exe" : object->dlpi_name, O_RDONLY);
  if (file < 0) return 0;
  const auto bytes = static_cast<std::size_t>(lseek(file, 0, SEEK_END));
  void* map = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (map == MAP_FAILED) return 0;
  const auto* base = static_cast<const char*>(map);
  const auto* header = static_cast<const Elf64_Ehdr*>(map);
  if (header->e_shoff && header->e_shstrndx) {
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(base + header->e_shoff);
    const char* names = base + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; ++i) {
      if (std::strncmp(names + sections[i].sh_name, ".noinit", 7)) continue;
      char* begin = reinterpret_cast<char*>(object->dlpi_addr + sections[i].sh_addr);
      static_cast<std::vector<Range>*>(ranges)->push_back({begin, begin + sections[i].sh_size});
    }
  }
  munmap(map, bytes);
  return 0;
}

const std::vector<Range>& static_shared() {
  static const std::vector<Range> ranges = [] {
    std::vector<Range> r;
    dl_iterate_phdr(add_sections, &r);
    return r;
  }();
  return ranges;
}

/// Over AddressSanitizer's guards too, so by volatile stores: a memset would be checked.
__attribute__((no_sanitize("address"))) void fill(Range r) {
  char* p = r.begin;
  for (; r.end - p >= 8; p += 8) *reinterpret_cast<volatile std::uint64_t*>(p) = ~std::uint64_t{0};
  for (; p < r.end; ++p) *static_cast<volatile char*>(p) = static_cast<char>(kFill);
}

}  // namespace

void fill_shared_memory() {
  for (const Range& r : static_shared()) fill(r);
  if (g_dynamic.begin) std::memset(g_dynamic.begin, kFill, g_dynamic.end - g_dynamic.begin);
}

bool in_shared_memory(const char* p) {
  if (p >= g_dynamic.begin && p < g_dynamic.end) return true;
  for (const Range& r : static_shared()) {
    if (p >= r.begin && p < r.end) return true;
  }
  return false;
}

DynamicShared::DynamicShared(std::size_t bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  if (posix_memalign(&p, 1024, bytes)) throw std::bad_alloc();
  g_dynamic = {static_cast<char*>(p), static_cast<char*>(p) + bytes};
}
DynamicShared::~DynamicShared() {
  std::free(g_dynamic.begin);
  g_dynamic = {};
}

void* dynamic_shared() {
  if (!g_dynamic.begin) fail("the kernel uses dynamic shared memory, its launch gave none");
  return g_dynamic.begin;
}

}  // namespace cuda_on_host
