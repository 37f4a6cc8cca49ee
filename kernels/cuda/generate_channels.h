#pragma once
#include "kernels/cuda/generate_columns.h"

// Weights whose channels are last, (filters, taps, channels), while theta's order is (filters, channels,
// taps). Work is divided by theta's order, in stretches; of a stretch a lane takes N channels of one tap,
// which are side by side in the weight and `taps` apart in theta's order, where N is a full pack or 1. Of a
// warp's lanes 32 / N take neighbouring channels and the next taps, so that they write or read whole sectors
// of memory, and, with an odd number of taps, seldom meet in a bank of shared memory.
namespace ssn::kernels {

/// A lane's channels, within a call's rows of stretches.
struct ChannelItem {
  std::int32_t row, tap, pack;  // pack: counted from the one in which the stretch begins
};
/// Where these are.
struct ChannelPlace {
  std::int32_t x;       // of the first, from the stretch's begin; the next are `taps` apart
  std::int64_t weight;  // of the first, in the weight
};

/// The order of a weight. As it is made by default: theta's own.
struct ChannelOrder {
  Divisor by_taps, by_channels, by_groups;  // groups: of 32 / pack packs, what a stretch may need
  std::int32_t pack = 1;

  ChannelOrder() = default;
  /// `full`: elements of a full pack of the weight's memory.
  ChannelOrder(std::int64_t channels, std::int64_t taps, const void* weight, std::int64_t full)
      : by_taps(taps), by_channels(channels) {
    if (channels % full == 0 && reinterpret_cast<std::uintptr_t>(weight) % 16 == 0)
      pack = static_cast<std::int32_t>(full);
  }
  /// Fixes the groups, for stretches of `length` that begin at `first` and at multiples of `step` behind it.
  void cover(std::int64_t length, std::int64_t first, std::int64_t step) {
    const bool whole = first % unit() == 0 && step % unit() == 0;
    const std::int64_t packs = whole ? ceil_div(length, unit()) : (length + unit() - 2) / unit() + 1;
    by_groups = Divisor(ceil_div(packs * pack, 32));
  }

  SSN_HD bool is_thetas() const { return by_taps.divisor == 1; }
  SSN_HD std::int32_t taps() const { return static_cast<std::int32_t>(by_taps.divisor); }
  /// Elements of theta's order between the starts of packs.
  SSN_HD std::int64_t unit() const { return std::int64_t{pack} * by_taps.divisor; }
  /// Of one stretch.
  SSN_HD std::int32_t items() const {
    return static_cast<std::int32_t>(by_groups.divisor) * (32 / pack) * taps();
  }

  template <int N>
  SSN_HD ChannelItem item(std::int32_t number) const {
    constexpr std::uint32_t kBeside = 32 / N;
    const std::uint32_t i = static_cast<std::uint32_t>(number), rest = i / kBeside;
    const std::uint32_t all = by_taps.quotient(rest), row = by_groups.quotient(all);
    const std::uint32_t pack = (all - row * by_groups.divisor) * kBeside + i % kBeside;
    return {static_cast<std::int32_t>(row), static_cast<std::int32_t>(rest - all * by_taps.divisor),
            static_cast<std::int32_t>(pack)};
  }
  /// `first`: where the stretch begins.
  template <int N>
  SSN_HD ChannelPlace place(const ChannelItem& item, std::int64_t first) const {
    const std::int64_t channel =  // counted over all filters
        std::int64_t{by_taps.quotient(static_cast<std::uint32_t>(first)) / N + item.pack} * N;
    return {static_cast<std::int32_t>(channel * taps() + item.tap - first), weight_at(channel, item.tap)};
  }
  /// The place in the weight of an element of theta's order.
  SSN_HD std::int64_t weight_at(std::int64_t i) const {
    const std::uint32_t channel = by_taps.quotient(static_cast<std::uint32_t>(i));
    return weight_at(channel, i - std::int64_t{channel} * taps());
  }

 private:
  SSN_HD std::int64_t weight_at(std::int64_t channel, std::int64_t tap) const {
    const std::int64_t filter = by_channels.quotient(static_cast<std::uint32_t>(channel));
    return (filter * taps() + tap) * by_channels.divisor + channel - filter * by_channels.divisor;
  }
};

/// What divides the width of a block's columns: `unit`, and whole packs of these channels, if `room` and the
/// period have place for both.
inline std::int64_t common_unit(std::int64_t unit, const ChannelOrder& order, std::int64_t period,
                                std::int64_t room) {
  const std::int64_t both = std::lcm(unit, order.is_thetas() ? 1 : order.unit());
  return both <= room && period % both == 0 ? both : unit;
}

// ---- what the forward kernels read

/// One product of a weight's sum: a coefficient, or a mask, times theta from `first` on.
template <class T>
struct Source {
  std::int64_t first;
  const T* coefficients;  // null: 1
  T gain;
  std::int32_t row = 0;  // of a block's tile, where it begins
};

/// A weight, or one tile of it. A part is what a warp writes at once.
template <class T>
struct Target {
  void* weight;        // the layer's, of T or bf16
  std::int64_t begin;  // in theta's order, within it
  std::int64_t size;
  std::int32_t first_source, sources,
      window;  // window: of the only source's mask; 1: one coefficient for all
  bool half;
  Divisor by_window;
  ChannelOrder order;
  std::int64_t first_part = 0;
  std::int32_t rows = 0;   // of theta
  std::int32_t chunk = 0;  // elements that a block of write_chunks takes
};

/// Bytes of a forward call's tables, at most.
template <class T>
std::int64_t forward_table_bytes(const TermCounts& counts, std::int64_t group_size) {
  return counts.terms * static_cast<std::int64_t>(sizeof(Target<T>) + sizeof(Source<T>)) +
         4 * std::min<std::int64_t>(group_size, 1 << 12) + 64;
}

}  // namespace ssn::kernels
