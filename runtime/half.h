#pragma once
#include <bit>
#include <cstdint>

namespace ssn {

/// The value of an IEEE 754 binary16 (PyTorch's float16), which files of other programs may hold. Computed
/// without a branch for numbers too small to be normal: the exponent's bias is corrected by a product.
inline float from_half(std::uint16_t half) {
  constexpr std::uint32_t kSpecial = 0x7c00, kExponent = 0x7f800000;
  const std::uint32_t magnitude = half & 0x7fffU, sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112F);
  if (magnitude >= kSpecial) bits = magnitude << 13 | kExponent;  // infinite, or not a number
  return std::bit_cast<float>(bits | sign);
}

}  // namespace ssn
