#include "datasets/tokenizer.h"

#include <algorithm>

#include "datasets/words.h"

namespace ssn {
namespace {

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

/// The longest piece that the word goes on with at `begin`; its end, or `begin` if there is none.
std::size_t longest_piece(const Vocabulary& vocabulary, std::string_view word, std::size_t begin,
                          std::int32_t& id) {
  const bool inside = begin > 0;
  for (std::size_t end = std::min(word.size(), begin + vocabulary.longest(inside)); end > begin; --end) {
    if (end < word.size() && !begins_character(word[end])) continue;
    id = vocabulary.find(word.substr(begin, end - begin), inside);
    if (id != Vocabulary::kNone) return end;
  }
  return begin;
}

/// Calls emit(id, begin, end) for each piece of a text.
template <class Emit>
void split(const Vocabulary& vocabulary, std::string_view text, bool cased, Emit&& emit) {
  struct Piece {
    std::int32_t id;
    std::size_t begin, end;  // in the word
  };
  std::vector<Piece> pieces;
  WordReader reader(text, cased);
  for (Word word; reader.next(word);) {
    pieces.clear();
    const std::size_t size = word.text.size();
    for (std::size_t at = 0; at < size;) {
      std::int32_t id = Vocabulary::kNone;
      const std::size_t end =
          word.characters > kMostWordCharacters ? at : longest_piece(vocabulary, word.text, at, id);
      if (end == at) {
        pieces.assign(1, {vocabulary.unknown(), 0, size});
        break;
      }
      pieces.push_back({id, at, end});
      at = end;
    }
    for (const Piece& piece : pieces) emit(piece.id, word, piece.begin, piece.end);
  }
}

}  // namespace

std::vector<Token> Tokenizer::tokenize(std::string_view text) const {
  std::vector<Token> tokens;
  split(*vocabulary_, text, cased_,
        [&](std::int32_t id, const Word& word, std::size_t begin, std::size_t end) {
          const auto [first, last] = word.source(begin, end);
          tokens.push_back({id, first, last});
        });
  return tokens;
}

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  split(*vocabulary_, text, cased_,
        [&](std::int32_t id, const Word&, std::size_t, std::size_t) { ids.push_back(id); });
}

}  // namespace ssn
