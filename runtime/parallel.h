#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

// The only place with OpenMP pragmas.
namespace ssn {

/// More would only wait for each other, and the system may have no room for them.
constexpr int kMostThreads = 1024;

/// Threads that parallel loops use: OMP_NUM_THREADS or the cores this process may run on, until set.
inline int num_threads() {
  return std::min(omp_get_max_threads(), kMostThreads);
}
inline void set_num_threads(int n) {
  omp_set_num_threads(n);
}

/// f(begin, end) over parts of [0, n), one part a thread; a part has at least `grain` elements (but the
/// last), and starts at a multiple of 16, so that neighbouring threads write different cache lines. How [0,
/// n) is cut depends on the thread count: nothing that is summed may depend on the parts.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= 0) return;
  const std::int64_t most = grain > 0 ? (n + grain - 1) / grain : n;
  const int parts = static_cast<int>(std::min<std::int64_t>(num_threads(), most));
  if (parts <= 1) return f(std::int64_t{0}, n);
  const std::int64_t unit = n >= 64 * parts ? 16 : 1, units = (n + unit - 1) / unit;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int p = 0; p < parts; ++p) {
    const std::int64_t begin = units * p / parts * unit, end = std::min(units * (p + 1) / parts * unit, n);
    if (begin < end) f(begin, end);
  }
}

/// f(index, begin, end) over fixed chunks of [0, n): the chunks do not depend on the thread count, so
/// reductions that combine one value a chunk in the order of the index give the same bits on any number of
/// threads.
template <class F>
void parallel_chunks(std::int64_t n, std::int64_t chunk, F&& f) {
  const std::int64_t count = (n + chunk - 1) / chunk;
  parallel_for(count, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) f(i, i * chunk, std::min(n, (i + 1) * chunk));
  });
}

}  // namespace ssn
