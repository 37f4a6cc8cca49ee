#include "runtime/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <vector>

namespace ssn {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Damerau and Levenshtein's distance (each pair of neighbours swapped at most once).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last), last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  const std::string plain = lower(word);
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(plain, lower(candidate));
    if (distance < least) least = distance, nearest = candidate;
  }
  return nearest;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const int ones = std::countl_one(first);  // the length, or 0 for ASCII
    if (ones == 1 || ones > 4 || text.size() - i < std::max<std::size_t>(1, ones)) return false;
    char32_t code = ones == 0 ? first : first & (0x7f >> ones);
    for (int k = 1; k < ones; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter ones must be written shorter
    if (code < kLeast[ones] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += std::max(1, ones);
  }
  return true;
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  const std::string nearest = nearest_name(word, candidates);
  return nearest.empty() ? fmt::format("known: {}", fmt::join(candidates, ", "))
                         : fmt::format("did you mean '{}'?", nearest);
}

}  // namespace ssn
