#pragma once
#include <functional>
#include <string>

#include "runtime/error.h"

namespace ssn::test {

/// The message of the UsageError that `f` throws; empty if it throws none.
inline std::string usage_error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

}  // namespace ssn::test
