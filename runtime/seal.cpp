#include "runtime/seal.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/stat.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "runtime/file_descriptor.h"
#include "runtime/liveness.h"

namespace ssn {
namespace {

// The first two lines are what any version begins with.
constexpr std::string_view kBeginning = "shapeshifter-checkpoint\nformat-version ";

struct Seal {
  std::int64_t length;
  std::uint32_t checksum;  // CRC-32 of all that follows the seal

  std::string text() const {
    std::string text =
        fmt::format("{}{}\nlength {}\ncrc32 {:08x}\n", kBeginning, kSealVersion, length, checksum);
    text.resize(kSealBytes, '\n');
    return text;
  }
};

/// Of the file from the seal's end on.
Seal seal_of(int fd, const std::string& path) {
  check_system(::lseek(fd, kSealBytes, SEEK_SET), path, "read it");
  std::vector<char> buffer(1 << 20);
  Seal seal{kSealBytes, 0};
  while (const std::size_t n = read_some(fd, path, buffer)) {
    seal.checksum = libdeflate_crc32(seal.checksum, buffer.data(), n);
    seal.length += static_cast<std::int64_t>(n);
    note_progress();
  }
  return seal;
}

/// The number that a line `name` has.
template <class T>
std::optional<T> field(std::string_view text, std::string_view name, int base) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(at + name.size());
  T value{};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

void seal_file(const std::string& path) {
  const FileDescriptor fd(check_system(::open(path.c_str(), O_RDWR | O_CLOEXEC), path, "open it"));
  // The disk works while the checksum is computed. Where a file system cannot, fsync does it all.
  static_cast<void>(::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
  const std::string text = seal_of(fd, path).text();
  check_system(::lseek(fd, 0, SEEK_SET), path, "write it");
  write_all(fd, path, text);
}

bool check_seal(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // no waiting at a pipe
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;  // its reader says why
  std::string head(kSealBytes, '\0');
  head.resize(read_some(fd, path, head));
  if (!head.starts_with(kBeginning)) return false;
  const auto version = field<std::int64_t>(head, "format-version ", 10);
  const auto length = field<std::int64_t>(head, "\nlength ", 10);
  const auto checksum = field<std::uint32_t>(head, "\ncrc32 ", 16);
  check(!version || *version <= kSealVersion, "checkpoint",
        "{}: its format version is {}, this program reads up to {}: use a newer program", path,
        version.value_or(0), kSealVersion);
  const bool whole = std::ssize(head) == kSealBytes && (!length || *length <= status.st_size);
  check(whole, "checkpoint", "{}: it is truncated, it has only {} bytes{}", path, status.st_size,
        length ? fmt::format(" of {}", *length) : "");
  const bool same = length && checksum && head == Seal{*length, *checksum}.text() &&
                    *length == status.st_size && seal_of(fd, path).checksum == *checksum;
  check(same, "checkpoint", "{}: it is damaged: its bytes are not those that were written", path);
  return true;
}

}  // namespace ssn
