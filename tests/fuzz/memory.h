#pragma once
#include <atomic>
#include <cstddef>

// What the program and the libraries that it uses have allocated, in bytes. Counted in malloc itself
// (memory_malloc.cpp), or in what sanitizers call in their place (memory_sanitizer.cpp). Past the limit the
// program ends; not so in a child process, which has limits of its own.
namespace ssn::fuzz {

inline std::atomic<std::ptrdiff_t> g_allocated{0}, g_most{0}, g_limit{PTRDIFF_MAX};

/// Begins to count what is allocated, and takes care that children are not limited.
void count_allocations();
/// Of a block that was allocated (positive), or is about to be released (negative).
void note_allocation(std::ptrdiff_t bytes);

}  // namespace ssn::fuzz
