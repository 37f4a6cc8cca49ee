#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "kernels/generate_terms.h"

// How the device walks theta, decided on the host. Theta is seen as a matrix with rows of `period` elements.
// A layer whose offsets are multiples of the period is then made of whole rows, each column of it of one
// column of theta; so a block that owns some columns finds all that it needs there, and reads it once for all
// such layers.
namespace ssn::kernels {

template <class T>
using Layers = std::span<const GeneratedLayer<T>>;

/// Quotients and rests by one multiplication. Exact for any 32-bit dividend and divisor > 0.
struct Divisor {
  std::uint32_t divisor = 1, inverse = ~0u;  // inverse: ⌊2³² / divisor⌋, at most 2³² − 1

  Divisor() = default;
  explicit Divisor(std::int64_t d) : divisor(static_cast<std::uint32_t>(d)) {
    if (d > 1) inverse = static_cast<std::uint32_t>((std::uint64_t{1} << 32) / divisor);
  }
  SSN_HD std::uint32_t quotient(std::uint32_t x) const {
    const auto low = static_cast<std::uint32_t>((std::uint64_t{x} * inverse) >> 32);  // right, or one less
    return x - low * divisor >= divisor ? low + 1 : low;
  }
  SSN_HD std::uint32_t rest(std::uint32_t x) const { return x - quotient(x) * divisor; }
};

/// A block owns `width` columns of `rows_of_block` of the rows that are used: its tile, row by row. Blocks
/// are ordered by rows, then by columns.
struct Columns {
  std::int64_t group_size = 0, period = 0;
  std::int32_t width = 0, rows = 0, rows_of_block = 0;  // width: a multiple of the unit
  Divisor by_width, by_across;                          // across: blocks that share rows

  void set_width(std::int64_t elements) {
    width = static_cast<std::int32_t>(elements);
    by_width = Divisor(width);
    by_across = Divisor(ceil_div(period, width));
  }
  SSN_HD std::int32_t across() const { return static_cast<std::int32_t>(by_across.divisor); }

  std::int64_t blocks_down() const { return ceil_div(rows, rows_of_block); }
  SSN_HD std::int32_t tile() const { return rows_of_block * width; }
};

/// Elements in 32 bytes, what the memory moves at once: every block's columns start at a multiple of it.
template <class T>
constexpr std::int64_t kUnit = 32 / sizeof(T);

constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return ceil_div(n, unit) * unit;
}

/// The layer is made of whole rows if the period divides this; 0 is divided by all.
template <class T>
std::int64_t offset_divisor(const GeneratedLayer<T>& l) {
  std::int64_t divisor = 0;
  if (l.method == GeneratedLayer<T>::Method::tiles) return 0;
  for (int k = 0; k < l.templates; ++k) divisor = std::gcd(divisor, l.offsets[k]);
  return divisor;
}
template <class T>
bool fits(const GeneratedLayer<T>& l, std::int64_t period) {
  return period > 0 && offset_divisor(l) % period == 0;
}

/// The period whose layers have the greatest sum of `gain(layer)`, 0 if none has any; or a longer one that
/// has nearly as much, for more columns are work for more processors. It is a multiple of the unit, and gives
/// theta `most_rows` rows at most.
template <class T, class Gain>
std::int64_t best_period(Layers<T> layers, std::int64_t group_size, std::int64_t most_rows, Gain&& gain) {
  constexpr std::int64_t kEnoughColumns = 1 << 16;
  std::map<std::int64_t, std::int64_t> gains;  // by the offsets' divisor
  for (const auto& l : layers) gains[offset_divisor(l)] += gain(l);
  std::map<std::int64_t, std::int64_t> sums;  // by period
  std::int64_t most = 0;
  const auto consider = [&](std::int64_t period) {
    if (period == 0 || period % kUnit<T> != 0 || ceil_div(group_size, period) > most_rows) return;
    std::int64_t sum = 0;
    for (const auto& [divisor, g] : gains) sum += divisor % period == 0 ? g : 0;
    sums[period] = sum;
    most = std::max(most, sum);
  };
  for (const auto& a : gains)
    for (const auto& b : gains) consider(std::gcd(a.first, b.first));
  consider(round_up(group_size, kUnit<T>));
  std::int64_t best = 0;
  for (const auto& [period, sum] : sums)
    if (sum > 0 && 20 * sum >= 19 * most && best < kEnoughColumns) best = period;
  return best;
}

/// The rows of theta that are used, and their places among those.
class UsedRows {
 public:
  UsedRows(std::int64_t group_size, std::int64_t period)
      : period_(period), place_(static_cast<std::size_t>(ceil_div(group_size, period))) {}
  void use(std::int64_t first, std::int64_t size) {
    for (std::int64_t row = first / period_; row * period_ < first + size; ++row)
      place_[static_cast<std::size_t>(row)] = 1;
  }
  /// After all calls of use().
  std::vector<std::int32_t> number() {
    std::vector<std::int32_t> rows;
    for (std::size_t row = 0; row < place_.size(); ++row) {
      if (!place_[row]) continue;
      place_[row] = static_cast<std::int32_t>(rows.size());
      rows.push_back(static_cast<std::int32_t>(row));
    }
    return rows;
  }
  /// The place among the used of every row, after number().
  const std::vector<std::int32_t>& places() const { return place_; }

 private:
  std::int64_t period_;
  std::vector<std::int32_t> place_;
};

/// As many columns for a block as its tile has room for, but so few that all of a large GPU has work: 528
/// blocks are four for each of 132 processors. `unit` divides the width.
inline std::int64_t block_width(std::int64_t period, std::int64_t rows, std::int64_t room, std::int64_t unit,
                                std::int64_t least) {
  const std::int64_t enough = std::max(round_up(ceil_div(period, 528), unit), round_up(least, unit));
  return std::max(unit, std::min({room / rows / unit * unit, enough, round_up(period, unit)}));
}

/// Tables that travel to the device together.
class Tables {
 public:
  /// The place of a copy of `values`, for at().
  template <class V>
  std::size_t add(const std::vector<V>& values) {
    const std::size_t place = words_.size(), bytes = values.size() * sizeof(V);
    words_.insert(words_.end(), (bytes + 7) / 8, 0);
    if (bytes > 0) std::memcpy(words_.data() + place, values.data(), bytes);
    return place;
  }
  template <class V>
  static const V* at(const void* tables, std::size_t place) {
    return reinterpret_cast<const V*>(static_cast<const std::uint64_t*>(tables) + place);
  }
  const std::vector<std::uint64_t>& words() const { return words_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(words_.size() * sizeof(std::uint64_t)); }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace ssn::kernels
