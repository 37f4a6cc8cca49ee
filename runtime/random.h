#pragma once
#include <cmath>
#include <cstdint>
#include <string_view>

#include "runtime/hd.h"

namespace ssn {

/// Philox 4x32-10 (Salmon et al., 2011): the draw is a function of (seed, stream, index) alone, so it is the
/// same on any device, thread and rank, and a restart continues the same sequence.
struct PhiloxDraw {
  std::uint32_t v[4];
};
SSN_HD inline PhiloxDraw philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  std::uint32_t c0 = static_cast<std::uint32_t>(index), c1 = static_cast<std::uint32_t>(index >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(b), c3 = static_cast<std::uint32_t>(a), c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// A named sequence of draws: `Random(seed, "init/conv1")`. The same index always gives the same draw.
class Random {
 public:
  Random(std::uint64_t seed, std::string_view stream) : seed_(seed), stream_(hash(stream)) {}
  Random(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  /// Stream `stream + *step`, where `step` lies in the memory of the device that draws: work that is recorded
  /// once draws anew each time it is replayed. Only kernels may ask it for its stream or for draws.
  Random(std::uint64_t seed, std::uint64_t stream, const std::uint64_t* step)
      : seed_(seed), stream_(stream), step_(step) {}

  SSN_HD std::uint64_t seed() const { return seed_; }
  SSN_HD std::uint64_t stream() const { return step_ != nullptr ? stream_ + *step_ : stream_; }

  std::uint32_t bits(std::uint64_t index) const { return philox(seed_, stream(), index).v[0]; }
  /// In [0, 1), 53 bits.
  double uniform(std::uint64_t index) const {
    const PhiloxDraw d = philox(seed_, stream(), index);
    return (static_cast<double>(d.v[0] >> 5) * 67108864.0 + static_cast<double>(d.v[1] >> 6)) /
           9007199254740992.0;
  }
  /// An integer in [0, n), n >= 1.
  SSN_HD std::int64_t below(std::int64_t n, std::uint64_t index) const {
    const PhiloxDraw d = philox(seed_, stream(), index);
    __extension__ using Wide = unsigned __int128;
    const std::uint64_t wide = static_cast<std::uint64_t>(d.v[0]) << 32 | d.v[1];
    return static_cast<std::int64_t>((static_cast<Wide>(wide) * static_cast<std::uint64_t>(n)) >> 64);
  }
  /// Mean 0, variance 1 (Box and Muller).
  double normal(std::uint64_t index) const {
    const PhiloxDraw d = philox(seed_, stream(), index);
    const double u = (static_cast<double>(d.v[0]) + 1.0) / 4294967296.0,
                 v = static_cast<double>(d.v[1]) / 4294967296.0;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586477 * v);
  }
  /// FNV-1a.
  static constexpr std::uint64_t hash(std::string_view text) {
    std::uint64_t h = 14695981039346656037ull;
    for (char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 1099511628211ull;
    return h;
  }

 private:
  std::uint64_t seed_, stream_;
  const std::uint64_t* step_ = nullptr;
};

}  // namespace ssn
