#pragma once
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "runtime/text.h"

// Enumerations that users choose from by name. Beside each stands
//   template <>
//   struct Names<Color> {
//     static constexpr std::string_view what = "color", values[] = {"red", "green"};
//   };
namespace ssn {

/// What messages call the enumeration, and the names of its values in their order.
template <class Enum>
struct Names;

template <class Enum>
requires requires {
  Names<Enum>::values;
}
constexpr std::string_view name_of(Enum value) {
  return Names<Enum>::values[static_cast<std::size_t>(value)];
}

template <class Enum>
std::vector<std::string> names_of() {
  return {std::begin(Names<Enum>::values), std::end(Names<Enum>::values)};
}

/// The value of that name. Others are a UsageError that suggests the nearest.
template <class Enum>
Enum value_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(Names<Enum>::values); ++i)
    if (Names<Enum>::values[i] == name) return static_cast<Enum>(i);
  fail_usage(Names<Enum>::what.data(), "'{}' is unknown: {}", name, suggestion(name, names_of<Enum>()));
}

}  // namespace ssn
