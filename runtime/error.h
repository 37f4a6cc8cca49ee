#pragma once
#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ssn {

/// The one exception of the project. what() is "[op] message"; where() is the source line, printed when the
/// environment has SSN_DEBUG=1.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, std::source_location at) : runtime_error(message), at_(at) {}
  std::string where() const { return fmt::format("{}:{}", at_.file_name(), at_.line()); }

 private:
  std::source_location at_;
};

/// Wrong usage or configuration: the command line exits with 2 instead of 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Names the operation and captures the caller's line; converts from a literal.
struct Where {
  std::string_view op;
  std::source_location at;
  constexpr Where(const char* op, std::source_location at = std::source_location::current())
      : op(op), at(at) {}
};

/// "[op] message".
std::string error_text(Where where, std::string_view message);

template <class... A>
[[noreturn]] void fail(Where where, fmt::format_string<A...> format, A&&... args) {
  throw Error(error_text(where, fmt::format(format, std::forward<A>(args)...)), where.at);
}
/// Throws Error unless ok. The message says what was expected, what was found and what to do.
template <class... A>
void check(bool ok, Where where, fmt::format_string<A...> format, A&&... args) {
  if (!ok) [[unlikely]]
    fail(where, format, std::forward<A>(args)...);
}
template <class... A>
[[noreturn]] void fail_usage(Where where, fmt::format_string<A...> format, A&&... args) {
  throw UsageError(error_text(where, fmt::format(format, std::forward<A>(args)...)), where.at);
}
template <class... A>
void check_usage(bool ok, Where where, fmt::format_string<A...> format, A&&... args) {
  if (!ok) [[unlikely]]
    fail_usage(where, format, std::forward<A>(args)...);
}

}  // namespace ssn
