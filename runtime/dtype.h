#pragma once
#include <cstdint>
#include <string_view>

#include "runtime/bf16.h"
#include "runtime/error.h"

namespace ssn {

enum class DType : std::uint8_t { f32, f64, bf16, i32, i64, u8 };

/// Size of one element in bytes.
constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64:
    case DType::i64: return 8;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[] = {"f32", "f64", "bf16", "i32", "i64", "u8"};
  return names[static_cast<int>(t)];
}

/// dtype_of<float> is DType::f32, and so on.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no dtype for this type");
  return DType::u8;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

/// The type of parameters beside activations of this one (bf16.h).
constexpr DType wider(DType t) {
  return t == DType::bf16 ? DType::f32 : t;
}

}  // namespace ssn
