#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "runtime/hd.h"

namespace ssn {

/// A float's upper half: 8 bits of exponent, 7 of mantissa. For storage: arithmetic happens in float.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  /// Rounded to the nearest, ties to even; a NaN stays one.
  SSN_HD bf16(float value) : bits(rounded(value)) {}
  SSN_HD static std::uint16_t rounded(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    std::uint16_t bits;  // one instruction; its NaN is always the same one
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const auto b = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = (b + 0x7FFF + (b >> 16 & 1)) >> 16;
    return static_cast<std::uint16_t>(value != value ? b >> 16 | 0x40 : nearest);
#endif
  }
  SSN_HD operator float() const {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
};
static_assert(sizeof(bf16) == 2 && std::is_trivially_copyable_v<bf16>);

/// What values stored as T are computed and summed in, and what the parameters beside them are.
template <class T>
using Wider = std::conditional_t<std::is_same_v<T, bf16>, float, T>;

/// to = value. In loops: through a bf16 on the way, compilers do not vectorise them.
template <class T>
SSN_HD inline void store(T& to, Wider<T> value) {
  if constexpr (std::is_same_v<T, bf16>)
    to.bits = bf16::rounded(value);
  else
    to = value;
}

}  // namespace ssn
