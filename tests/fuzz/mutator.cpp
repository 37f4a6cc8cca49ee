#include "fuzz/mutator.h"

#include <algorithm>
#include <cctype>
#include <limits>

namespace ssn::fuzz {
namespace {

constexpr std::uint64_t kDrawsPerFile = 1 << 12;
constexpr std::size_t kMostGrowth = 1 << 12;

}  // namespace

std::size_t Mutator::below(std::size_t n) {
  return static_cast<std::size_t>(
      random_.below(static_cast<std::int64_t>(std::max<std::size_t>(n, 1)), at_++));
}

std::string Mutator::file(std::int64_t number) {
  at_ = static_cast<std::uint64_t>(number) * kDrawsPerFile;
  std::string bytes = any_file();
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
  return bytes;
}

void Mutator::change(std::string& bytes) {
  const std::size_t at = below(bytes.size()), end = at + below(std::min(bytes.size() - at, kMostGrowth));
  switch (below(10)) {
    case 0:
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
      break;
    case 2:
      if (!bytes.empty()) bytes[at] = static_cast<char>(below(256));
      break;
    case 3:
      bytes.resize(below(2) == 0 ? at : bytes.size() - std::min<std::size_t>(bytes.size(), below(16)));
      break;
    case 4: bytes.append(below(64), static_cast<char>(below(2) * below(256))); break;
    case 5: bytes.erase(at, end - at); break;
    case 6: bytes.insert(below(bytes.size()), bytes.substr(at, end - at)); break;
    case 7: {
      const std::string& other = any_file();
      bytes = bytes.substr(0, at) +
              other.substr(std::min(other.size(), below(2) == 0 ? at : below(other.size())));
      break;
    }
    case 8: overwrite_integer(bytes); break;
    default: overwrite_words(bytes); break;
  }
}

/// Of 1, 2, 4 or 8 bytes, in either order.
void Mutator::overwrite_integer(std::string& bytes) {
  const std::size_t width = std::size_t{1} << below(4);
  if (bytes.size() < width) return;
  const std::size_t at = below(bytes.size() - width + 1);
  const std::uint64_t size = bytes.size();
  const std::uint64_t values[] = {0,    1,         0x7f,         0x80,       0xff,  0x7fff,
                                  1023, 0x7ffffff, 0x7fffffff,   0x80000000, ~0ull, ~0ull >> 1,
                                  size, size + 1,  size - width, 1ull << 40, at,    std::uint64_t{1} << 63};
  const std::uint64_t value = values[below(std::size(values))];
  const bool big = below(2) == 0;
  for (std::size_t i = 0; i < width; ++i)
    bytes[at + (big ? width - 1 - i : i)] = static_cast<char>(value >> (8 * i));
}

/// A number in words, or a sign that has a meaning.
void Mutator::overwrite_words(std::string& bytes) {
  static const std::string numbers[] = {
      "0",    "-1",   "1",       "3",         "99999999999999999999", "9223372036854775807", "1e999", "nan",
      "-0.0", "1e-9", "1048576", "2147483648"};
  static const std::string signs[] = {"[", "]",  "{", "}",  "\"",   ",",    ":",
                                      "=", "\n", "#", "\\", "null", "\xff", std::string(1, '\0'),
                                      "'", "."};
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size()));
  const auto first = std::find_if(from, bytes.end(), digit),
             last = std::find_if_not(first, bytes.end(), digit);
  if (first != bytes.end() && below(2) == 0)
    bytes.replace(first, last, numbers[below(std::size(numbers))]);
  else if (from != bytes.end())
    bytes.replace(from, from + 1, signs[below(std::size(signs))]);
}

}  // namespace ssn::fuzz
