#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "runtime/error.h"

// Files by the system's calls.
namespace ssn {

/// Passes on the result of a system's call; -1 is an Error with the system's words.
template <class T>
T check_system(T result, const std::string& path, const char* action) {
  check(result >= 0, "file", "{}: cannot {}: {}", path, action, std::strerror(errno));
  return result;
}

/// Closed with its scope; −1 is none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  operator int() const { return fd_; }

 private:
  int fd_;
};

/// Fills `to` from where the file stands; returns how much there was before its end.
inline std::size_t read_some(int fd, const std::string& path, std::span<char> to) {
  std::size_t filled = 0;
  while (filled < to.size()) {
    const ssize_t n = ::read(fd, to.data() + filled, to.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (check_system(n, path, "read it") == 0) break;
    filled += static_cast<std::size_t>(n);
  }
  return filled;
}

/// Writes all of `bytes` where the file stands.
inline void write_all(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    bytes.remove_prefix(static_cast<std::size_t>(check_system(n, path, "write it")));
  }
}

}  // namespace ssn
