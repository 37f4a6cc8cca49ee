#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "runtime/text.h"

namespace ssn {

/// The value whose name is `name`; `names` are in the order of the enumeration. Otherwise a UsageError.
template <class Enum, std::size_t N>
Enum enum_of(const char* what, std::string_view name, const std::string_view (&names)[N]) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  const std::vector<std::string> known(names, names + N);
  fail_usage(what, "'{}' is unknown: {}", name, suggestion(name, known));
}

}  // namespace ssn
