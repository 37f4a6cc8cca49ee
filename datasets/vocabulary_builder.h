#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ssn {

/// How often each word (of WordReader) occurs.
class WordCounts {
 public:
  void add(std::string_view text, bool cased);

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Map = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;
  const Map& words() const { return words_; }

 private:
  Map words_;
};

/// The pieces of a vocabulary of `size`, or fewer where the words give no more: the special ones, then, by
/// falling frequency, the words' characters and what comes of joining, again and again, the pair of
/// neighbours that occurs most often (byte pair encoding, Sennrich et al. 2016, with WordPiece's ##), if it
/// occurs twice. The most frequent characters get up to half of the pieces whatever their frequency. Of two
/// pairs with the same frequency the one made of earlier pieces is joined: the counts alone decide the
/// outcome.
std::vector<std::string> build_pieces(const WordCounts& counts, std::int64_t size);

}  // namespace ssn
