#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>

// Messages for people, on stderr: results go to stdout. Thread-safe.
namespace ssn {

/// What is printed: info lines of rank 0 unless quiet; warnings always, those of other ranks with the rank in
/// front.
struct LogSettings {
  int rank = 0;
  bool quiet = false;
};
void set_log(LogSettings settings);
LogSettings log_settings();

/// Text as it is. What cannot be written is lost: a full disk under a log must not end a run.
void write_stderr(std::string_view text);

/// A line that stays at the bottom of a terminal and is drawn over by the next one; empty removes it. Log
/// lines go above it.
void set_live_line(std::string_view text);

namespace detail {
void log_info(std::string_view text);
void log_warning(std::string_view text);
}  // namespace detail

template <class... A>
void info(fmt::format_string<A...> format, A&&... args) {
  detail::log_info(fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
void warn(fmt::format_string<A...> format, A&&... args) {
  detail::log_warning(fmt::format(format, std::forward<A>(args)...));
}

}  // namespace ssn
