#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ssn {

/// Longer words are unknown, whatever the vocabulary.
constexpr std::int64_t kMostWordCharacters = 100;

/// A word as BERT's basic tokenizer gives it, and where it came from.
struct Word {
  std::string_view text;                      // UTF-8, normalised; valid until the next word is read
  std::int64_t characters = 0;                // of text
  std::size_t begin = 0;                      // of the word in the source, in bytes
  std::span<const std::size_t> begins, ends;  // in the source, of the character each byte of text belongs to;
                                              // empty: byte i is byte begin + i of the source
  /// The bytes [first, second) of the source that the bytes [first, last) of text came from; first < last.
  std::pair<std::size_t, std::size_t> source(std::size_t first, std::size_t last) const {
    return begins.empty() ? std::pair(begin + first, begin + last) : std::pair(begins[first], ends[last - 1]);
  }
};

/// Splits text into words as BERT's reference does (BasicTokenizer in github.com/google-research/bert):
/// control characters, NUL, U+FFFD and bytes that are not UTF-8 are dropped; white space separates words; CJK
/// ideographs and punctuation (ASCII symbols too) are words of their own; unless `cased`, a word is
/// lower-cased, decomposed (NFD) and loses its accents (category Mn).
class WordReader {
 public:
  /// `text` must outlive the reader.
  WordReader(std::string_view text, bool cased) : text_(text), cased_(cased) {}
  /// False at the end of the text.
  bool next(Word& word);

 private:
  struct Character {
    char32_t code;
    std::size_t begin, end;  // in the source
  };
  void take_plain(Word& word);
  void take_word(Word& word);
  void read_token();
  void normalise();

  std::string_view text_;
  bool cased_;
  std::size_t at_ = 0;                 // the next byte to read
  std::size_t plain_end_ = 0;          // bytes up to here are letters, digits and punctuation of ASCII
  std::vector<Character> characters_;  // of a token between white space that is not plain
  std::size_t next_character_ = 0;     // of these
  std::vector<Character> scratch_;
  std::string word_;
  std::vector<std::size_t> begins_, ends_;
};

}  // namespace ssn
