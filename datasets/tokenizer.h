#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "datasets/vocabulary.h"

namespace ssn {

/// A piece of text, by its number in the vocabulary, and the bytes [begin, end) of the text that it came
/// from.
struct Token {
  std::int32_t id;
  std::size_t begin, end;
};

/// BERT's tokenizer: words as WordReader gives them, each cut greedily into the longest pieces that the
/// vocabulary has. A word that cannot be cut, or of more than 100 characters, is [UNK]. Special pieces in the
/// text are text like any other.
class Tokenizer {
 public:
  Tokenizer(std::shared_ptr<const Vocabulary> vocabulary, bool cased)
      : vocabulary_(std::move(vocabulary)), cased_(cased) {}

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  std::vector<Token> tokenize(std::string_view text) const;
  /// Appends the numbers alone.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  bool cased_;
};

}  // namespace ssn
