#include "datasets/text_file.h"

#include <unicode/utf8.h>

#include "datasets/gz_file.h"

namespace ssn {
namespace {

std::string read_all(GzFile& file) {
  constexpr std::size_t kStep = 1 << 20;
  std::string text;
  for (std::size_t size = 0;;) {
    text.resize(size + kStep);
    const std::size_t count = file.read({reinterpret_cast<std::uint8_t*>(text.data()) + size, kStep});
    size += count;
    if (count < kStep) return text.resize(size), text;
  }
}

/// Bytes of `text` that belong to no character, and where the first is.
struct Invalid {
  std::size_t count = 0, first = 0;
};
Invalid invalid_bytes(const std::string& text) {
  Invalid found;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    UChar32 code = 0;
    U8_NEXT(bytes, at, text.size(), code);
    if (code >= 0) continue;
    if (found.count == 0) found.first = begin;
    found.count += at - begin;
  }
  return found;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  GzFile file(path);
  std::string text = read_all(file);
  file.check(!text.empty(), "is empty; expected text");
  const std::size_t nul = text.find('\0');
  file.check(nul == text.npos, "is not a text file: byte {} is NUL; expected UTF-8", nul);
  const Invalid invalid = invalid_bytes(text);
  file.check(invalid.count <= text.size() / 1000,
             "is not UTF-8: {} of its {} bytes belong to no character, the first is byte {}; convert it with "
             "iconv",
             invalid.count, text.size(), invalid.first);
  return text;
}

}  // namespace ssn
