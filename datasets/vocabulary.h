#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ssn {

/// The pieces that text is cut into; a piece's number is its line in the file, from 0. A piece that begins
/// with ## goes on a word.
class Vocabulary {
 public:
  /// A file with a piece a line, as BERT's vocab.txt. Errors name the file and the line.
  static Vocabulary read(const std::string& path);
  /// Empty or repeated pieces, and a missing [PAD], [UNK], [CLS], [SEP] or [MASK] are an Error that names
  /// `source`.
  Vocabulary(std::vector<std::string> pieces, const std::string& source);
  Vocabulary(const Vocabulary&) = delete;  // the maps point to the pieces
  Vocabulary(Vocabulary&&) = default;

  std::int64_t size() const { return std::ssize(pieces_); }
  const std::vector<std::string>& pieces() const { return pieces_; }
  /// The file's text.
  std::string text() const;

  static constexpr std::int32_t kNone = -1;
  /// The number of the piece that is `text` at the beginning of a word, or (`inside`) further on, where it is
  /// given without its ##; or kNone.
  std::int32_t find(std::string_view text, bool inside) const {
    const Map& map = inside ? inside_ : first_;
    const auto it = map.find(text);
    return it == map.end() ? kNone : it->second;
  }
  /// Bytes of the longest of these.
  std::size_t longest(bool inside) const { return inside ? longest_inside_ : longest_first_; }

  std::int32_t pad() const { return pad_; }
  std::int32_t unknown() const { return unknown_; }
  std::int32_t first() const { return first_of_sequence_; }
  std::int32_t separator() const { return separator_; }
  std::int32_t mask() const { return mask_; }

 private:
  using Map = std::unordered_map<std::string_view, std::int32_t>;
  std::vector<std::string> pieces_;
  Map first_, inside_;
  std::size_t longest_first_ = 0, longest_inside_ = 0;
  std::int32_t pad_, unknown_, first_of_sequence_, separator_, mask_;
};

/// What every vocabulary built here begins with: [PAD], [UNK], [CLS], [SEP], [MASK].
const std::vector<std::string>& special_pieces();

}  // namespace ssn
