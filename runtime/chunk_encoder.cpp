#include "runtime/chunk_encoder.h"

#include <zlib.h>

#include <bit>
#include <cstring>

#include "runtime/error.h"
#include "runtime/hd.h"

namespace ssn {
namespace {

static_assert(std::endian::native == std::endian::little, "chunks are written as they lie in memory");

// A lane's sums stay below 2^32: kRounds (kRounds + 1) / 2 · 65535.
constexpr std::size_t kLanes = 32, kRounds = 256, kBlock = kLanes * kRounds;

/// The sum of the words so far, and the sum of that after each word.
struct Sums {
  std::uint64_t words = 0, prefixes = 0;

  void add(std::uint16_t word) { prefixes += words += word; }
};

/// Word i of the block's kBlock is in kBlock − i of its prefixes; i = round · kLanes + lane.
SSN_CLONES void add_block(const std::uint16_t* words, Sums& sums) {
  std::uint32_t lanes[kLanes] = {}, rounds[kLanes] = {};
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += words[round * kLanes + lane];
      rounds[lane] += lanes[lane];
    }
  }
  std::uint64_t sum = 0, prefixes = kBlock * sums.words;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    sum += lanes[lane];
    prefixes += kLanes * std::uint64_t{rounds[lane]} - lane * lanes[lane];
  }
  sums.words += sum;
  sums.prefixes += prefixes;
}

/// Of the words with their bytes swapped, which is times 256 modulo 65535; in ones' complement, so that only
/// zeros give 0.
std::uint32_t reduced(std::uint64_t sum) {
  const auto rest = static_cast<std::uint32_t>(sum % 65535 * 256 % 65535);
  return sum > 0 && rest == 0 ? 65535 : rest;
}

}  // namespace

std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  check(bytes.size() <= (16 << 20), "fletcher32", "{} bytes are too many", bytes.size());
  Sums sums;
  std::uint16_t words[kBlock];
  std::size_t at = 0;
  for (; at + sizeof(words) <= bytes.size(); at += sizeof(words)) {
    std::memcpy(words, bytes.data() + at, sizeof(words));
    add_block(words, sums);
  }
  for (; at < bytes.size(); at += 2) {
    std::uint16_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(2, bytes.size() - at));
    sums.add(word);
  }
  return reduced(sums.prefixes) << 16 | reduced(sums.words);
}

std::span<const std::byte> ChunkEncoder::encode(std::span<const std::byte> data, std::size_t size) {
  constexpr std::size_t kChecksum = 4;
  left_out_ = 0;
  std::size_t length = size;
  if (compress_) {
    shuffled_.resize(size);
    const std::size_t elements = size / element_;
    for (std::size_t byte = 0; byte < element_; ++byte)
      for (std::size_t i = 0; i < elements; ++i) {
        const std::size_t from = i * element_ + byte;
        shuffled_[byte * elements + i] = from < data.size() ? data[from] : std::byte{0};
      }
    uLongf deflated = compressBound(size);
    chunk_.resize(deflated + kChecksum);
    const int status = compress2(reinterpret_cast<Bytef*>(chunk_.data()), &deflated,
                                 reinterpret_cast<const Bytef*>(shuffled_.data()), size, kLevel);
    check(status == Z_OK, "zlib", "cannot compress {} bytes (error {})", size, status);
    length = deflated;
    if (deflated >= size) {
      constexpr std::uint32_t kDeflate = 1;  // its place among the filters
      left_out_ = 1u << kDeflate;
      length = size;
      std::memcpy(chunk_.data(), shuffled_.data(), size);
    }
  } else {
    chunk_.resize(size + kChecksum);
    std::memcpy(chunk_.data(), data.data(), data.size());
    std::memset(chunk_.data() + data.size(), 0, size - data.size());
  }
  const std::uint32_t checksum = fletcher32(std::span(chunk_).first(length));
  std::memcpy(chunk_.data() + length, &checksum, kChecksum);
  return std::span(chunk_).first(length + kChecksum);
}

}  // namespace ssn
