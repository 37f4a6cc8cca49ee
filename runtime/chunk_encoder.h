#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ssn {

/// HDF5's checksum Fletcher32 of at most 16 MiB: two sums modulo 65535 over words of 16 bits.
std::uint32_t fletcher32(std::span<const std::byte> bytes);

/// Makes of a chunk what HDF5's filters would, with less copying, so that it can be written as it is: shuffle
/// and deflate (if `compress`), then Fletcher32.
class ChunkEncoder {
 public:
  /// Of deflate: higher ones take several times as long, for a percent of floating-point numbers.
  static constexpr int kLevel = 1;

  /// `element`: bytes of one.
  ChunkEncoder(std::size_t element, bool compress) : element_(element), compress_(compress) {}

  /// The chunk's data followed by zeros up to `size`, encoded; stands until the next call.
  std::span<const std::byte> encode(std::span<const std::byte> data, std::size_t size);
  /// Of the chunk that was encoded last: the filters that were left out, bit by bit in their order. Deflate
  /// is, where it would make the chunk no smaller.
  std::uint32_t left_out() const { return left_out_; }

 private:
  std::size_t element_;
  bool compress_;
  std::uint32_t left_out_ = 0;
  std::vector<std::byte> chunk_, shuffled_;
};

}  // namespace ssn
