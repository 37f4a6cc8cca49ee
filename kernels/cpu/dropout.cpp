#include "kernels/dropout.h"

#include <algorithm>

#include "kernels/functors.h"
#include "runtime/bf16.h"
#include "runtime/hd.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
constexpr int kDraws = 64;                // at once
constexpr std::int64_t kGrain = 1 << 12;  // fewer elements take less time than a thread takes to start

/// The words of kDraws draws.
SSN_CLONES void draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::uint32_t* words) {
#pragma omp simd
  for (int i = 0; i < kDraws; ++i) {
    const PhiloxDraw d = philox(seed, stream, first + static_cast<std::uint64_t>(i));
    words[4 * i] = d.v[0];
    words[4 * i + 1] = d.v[1];
    words[4 * i + 2] = d.v[2];
    words[4 * i + 3] = d.v[3];
  }
}

/// f(begin, end, the words of units begin to end)
template <class F>
void each_unit(const DropoutRule& rule, std::int64_t begin, std::int64_t end, F&& f) {
  std::uint32_t words[4 * kDraws];
  while (begin < end) {
    const std::int64_t first = begin / 4, last = std::min(end, 4 * (first + kDraws));
    draw(rule.random.seed(), rule.random.stream(), static_cast<std::uint64_t>(first), words);
    f(begin, last, words + begin % 4);
    begin = last;
  }
}
}  // namespace

template <class T>
void dropout(CpuQueue&, std::int64_t n, const DropoutRule& rule, const T* x, T* y) {
  const std::uint32_t threshold = rule.threshold();
  using W = Wider<T>;
  const W scale = static_cast<W>(1 / (1 - rule.rate));
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t from = rule.first + begin, to = rule.first + end;  // place among all elements
    each_unit(rule, from / rule.unit, (to - 1) / rule.unit + 1,
              [&](std::int64_t u, std::int64_t last, const std::uint32_t* words) {
                if (rule.unit == 1) {
                  const T* in = x + (u - rule.first);
                  T* out = y + (u - rule.first);
#pragma omp simd
                  for (std::int64_t i = 0; i < last - u; ++i)
                    store(out[i], kept_if(words[i] >= threshold, in[i] * scale));
                  return;
                }
                for (; u < last; ++u) {
                  const W factor = *words++ >= threshold ? scale : W(0);
                  const std::int64_t stop = std::min(to, (u + 1) * rule.unit) - rule.first;
#pragma omp simd
                  for (std::int64_t i = std::max(from, u * rule.unit) - rule.first; i < stop; ++i)
                    store(y[i], kept_if(factor > 0, x[i] * factor));
                }
              });
  });
}

template void dropout<bf16>(CpuQueue&, std::int64_t, const DropoutRule&, const bf16*, bf16*);
template void dropout<float>(CpuQueue&, std::int64_t, const DropoutRule&, const float*, float*);
template void dropout<double>(CpuQueue&, std::int64_t, const DropoutRule&, const double*, double*);

}  // namespace ssn::kernels
