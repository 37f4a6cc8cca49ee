#include "runtime/log.h"

#include <cstdio>
#include <mutex>

namespace ssn {
namespace {

struct Log {
  std::mutex mutex;
  LogSettings settings;
  std::string live;
};
Log& state() {
  static Log* log = new Log;  // never destroyed: destructors of static objects may still log
  return *log;
}

constexpr const char* kEraseLine = "\r\x1b[K";

void write_above_live_line(const Log& log, std::string_view text) {
  const bool live = !log.live.empty();
  write_stderr(fmt::format("{}{}\n{}", live ? kEraseLine : "", text, log.live));
}

}  // namespace

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void set_log(LogSettings settings) {
  std::lock_guard lock(state().mutex);
  state().settings = settings;
}
LogSettings log_settings() {
  std::lock_guard lock(state().mutex);
  return state().settings;
}

void set_live_line(std::string_view text) {
  Log& log = state();
  std::lock_guard lock(log.mutex);
  if (log.live.empty() && text.empty()) return;
  log.live = text;
  write_stderr(fmt::format("{}{}", kEraseLine, text));
}

namespace detail {
void log_info(std::string_view text) {
  Log& log = state();
  std::lock_guard lock(log.mutex);
  if (log.settings.rank == 0 && !log.settings.quiet) write_above_live_line(log, text);
}
void log_warning(std::string_view text) {
  Log& log = state();
  std::lock_guard lock(log.mutex);
  const std::string from = log.settings.rank > 0 ? fmt::format("rank {}: ", log.settings.rank) : "";
  write_above_live_line(log, fmt::format("warning: {}{}", from, text));
}
}  // namespace detail

}  // namespace ssn
