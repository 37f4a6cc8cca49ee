#include "datasets/vocabulary.h"

#include <algorithm>

#include "datasets/text_file.h"
#include "runtime/error.h"
#include "runtime/text.h"

namespace ssn {
namespace {

constexpr std::string_view kInside = "##";

std::string_view stripped(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r\v\f";
  const std::size_t begin = line.find_first_not_of(kSpace);
  if (begin == line.npos) return {};
  return line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

const std::vector<std::string>& special_pieces() {
  static const std::vector<std::string> pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  return pieces;
}

Vocabulary Vocabulary::read(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  const std::string text = read_text_file(path);
  std::vector<std::string> pieces;
  for (std::size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
       begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    pieces.emplace_back(stripped(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return {std::move(pieces), path};
}

Vocabulary::Vocabulary(std::vector<std::string> pieces, const std::string& source)
    : pieces_(std::move(pieces)) {
  constexpr std::int64_t kMost = 1 << 24;
  check(size() <= kMost, "vocabulary", "{}: has {} lines; expected {} at most, a piece a line", source,
        size(), kMost);
  std::unordered_map<std::string_view, std::int32_t> all;
  for (std::int32_t id = 0; id < size(); ++id) {
    const std::string_view piece = pieces_[id];
    check(!piece.empty(), "vocabulary", "{}: line {} is empty; expected a piece a line", source, id + 1);
    check(is_utf8(piece), "vocabulary", "{}: line {} is not UTF-8", source, id + 1);
    const auto [it, added] = all.emplace(piece, id);
    check(added, "vocabulary", "{}: line {} repeats line {}: '{}'", source, id + 1, it->second + 1, piece);
    const bool inside = piece.starts_with(kInside) && piece.size() > kInside.size();
    const std::string_view key = inside ? piece.substr(kInside.size()) : piece;
    (inside ? inside_ : first_).emplace(key, id);
    std::size_t& longest = inside ? longest_inside_ : longest_first_;
    longest = std::max(longest, key.size());
  }
  std::int32_t* const members[] = {&pad_, &unknown_, &first_of_sequence_, &separator_, &mask_};
  for (std::size_t i = 0; i < std::size(members); ++i) {
    const std::string& special = special_pieces()[i];
    const auto it = all.find(special);
    check(it != all.end(), "vocabulary", "{}: {} is missing; a vocabulary needs a line for each of {}",
          source, special, fmt::join(special_pieces(), ", "));
    *members[i] = it->second;
  }
}

std::string Vocabulary::text() const {
  return fmt::format("{}\n", fmt::join(pieces_, "\n"));
}

}  // namespace ssn
