#include "datasets/vocabulary_builder.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "datasets/vocabulary.h"
#include "datasets/words.h"
#include "runtime/error.h"

namespace ssn {
namespace {

constexpr std::string_view kInside = "##";
constexpr std::int64_t kLeastCount = 2;

/// Calls f(character) for each character of UTF-8 text.
template <class F>
void for_each_character(std::string_view text, F&& f) {
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    for (end = begin + 1; end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80;) ++end;
    f(text.substr(begin, end - begin));
  }
}

class Joiner {
 public:
  explicit Joiner(const WordCounts& counts) {
    add_characters(counts);
    add_words(counts);
  }
  std::vector<std::string> pieces(std::int64_t size);

 private:
  struct Spelling {
    std::int64_t count;
    std::vector<std::int32_t> symbols;
  };
  struct Pair {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words = {};  // that have had it; a word may be there twice
  };
  struct Candidate {
    std::int64_t count;
    std::int32_t left, right;
    bool operator<(const Candidate& other) const {
      return std::tuple(count, other.left, other.right) < std::tuple(other.count, left, right);
    }
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }

  std::uint64_t pair_at(std::uint32_t word, std::size_t i) const {
    return key(words_[word].symbols[i], words_[word].symbols[i + 1]);
  }

  void add_characters(const WordCounts& counts);
  void add_words(const WordCounts& counts);
  void count_pairs(std::uint32_t word, std::int64_t sign);
  std::optional<Candidate> best();
  bool join(const Candidate& pair);

  std::vector<std::string> names_;           // of symbols; the first are the characters
  std::vector<std::int64_t> symbol_counts_;  // of the characters, falling
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<Spelling> words_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> candidates_;  // those whose count has fallen since are found out later
};

void Joiner::add_characters(const WordCounts& counts) {
  std::unordered_map<std::string, std::int64_t> found;
  std::string name;
  for (const auto& word : counts.words()) {
    name.clear();
    for_each_character(word.first, [&](std::string_view character) {
      name.append(character);
      found[name] += word.second;
      name = kInside;
    });
  }
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (auto& [symbol, count] : found) sorted.emplace_back(-count, symbol);
  std::ranges::sort(sorted);
  for (auto& [negative, symbol] : sorted) {
    ids_.emplace(symbol, static_cast<std::int32_t>(names_.size()));
    names_.push_back(std::move(symbol));
    symbol_counts_.push_back(-negative);
  }
}

void Joiner::add_words(const WordCounts& counts) {
  std::string name;
  for (const auto& [word, count] : counts.words()) {
    Spelling spelling{.count = count, .symbols = {}};
    name.clear();
    for_each_character(word, [&](std::string_view character) {
      spelling.symbols.push_back(ids_.at(name.append(character)));
      name = kInside;
    });
    const std::size_t pairs = spelling.symbols.size() - 1;
    const auto index = static_cast<std::uint32_t>(words_.size());
    words_.push_back(std::move(spelling));
    count_pairs(index, 1);
    for (std::size_t i = 0; i < pairs; ++i) pairs_.at(pair_at(index, i)).words.push_back(index);
  }
  for (const auto& [key, pair] : pairs_)
    candidates_.push({pair.count, static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key)});
}

/// Adds a word's pairs, or takes them away.
void Joiner::count_pairs(std::uint32_t word, std::int64_t sign) {
  for (std::size_t i = 0; i + 1 < words_[word].symbols.size(); ++i)
    pairs_[pair_at(word, i)].count += sign * words_[word].count;
}

/// The pair to join next.
std::optional<Joiner::Candidate> Joiner::best() {
  while (!candidates_.empty()) {
    Candidate top = candidates_.top();
    const std::int64_t count = pairs_.at(key(top.left, top.right)).count;
    if (count == top.count) return count >= kLeastCount ? std::optional(top) : std::nullopt;
    candidates_.pop();
    if (count < top.count && count >= kLeastCount) candidates_.push({count, top.left, top.right});
  }
  return {};
}

/// Joins the pair everywhere. False if another pair has given the same piece before.
bool Joiner::join(const Candidate& pair) {
  std::string name = names_[pair.left] + names_[pair.right].substr(kInside.size());
  const auto [it, added] = ids_.emplace(name, static_cast<std::int32_t>(names_.size()));
  if (added) names_.push_back(std::move(name));
  const std::int32_t joined = it->second;
  const std::vector<std::uint32_t> words = std::move(pairs_.at(key(pair.left, pair.right)).words);
  pairs_.at(key(pair.left, pair.right)).words.clear();
  std::vector<std::uint64_t> risen;
  for (const std::uint32_t word : words) {
    auto& symbols = words_[word].symbols;
    const auto found = [&](std::size_t i) {
      return i + 1 < symbols.size() && symbols[i] == pair.left && symbols[i + 1] == pair.right;
    };
    std::size_t first = 0;
    while (first < symbols.size() && !found(first)) ++first;
    if (first == symbols.size()) continue;
    count_pairs(word, -1);
    std::size_t to = first;
    for (std::size_t i = first; i < symbols.size(); ++i) {
      const bool join = found(i);
      symbols[to++] = join ? joined : symbols[i];
      if (join) ++i;
    }
    symbols.resize(to);
    count_pairs(word, 1);
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      if (symbols[i] == joined || symbols[i + 1] == joined) {
        risen.push_back(pair_at(word, i));
        pairs_.at(risen.back()).words.push_back(word);
      }
  }
  std::ranges::sort(risen);
  risen.erase(std::ranges::unique(risen).begin(), risen.end());
  for (const std::uint64_t k : risen)
    candidates_.push({pairs_.at(k).count, static_cast<std::int32_t>(k >> 32), static_cast<std::int32_t>(k)});
  return added;
}

std::vector<std::string> Joiner::pieces(std::int64_t size) {
  std::vector<std::string> pieces = special_pieces();
  const std::size_t characters = symbol_counts_.size();
  std::size_t next = 0;  // character
  while (std::ssize(pieces) < size) {
    const bool first_half = std::ssize(pieces) < size / 2;
    const std::optional<Candidate> pair = next < characters && first_half ? std::nullopt : best();
    // A pair's parts occur at least as often as the pair: its characters are there before it is joined.
    if (next < characters && (!pair || symbol_counts_[next] >= pair->count)) {
      pieces.push_back(names_[next++]);
    } else if (!pair) {
      break;
    } else if (join(*pair)) {
      pieces.push_back(names_.back());
    }
  }
  return pieces;
}

}  // namespace

void WordCounts::add(std::string_view text, bool cased) {
  WordReader reader(text, cased);
  for (Word word; reader.next(word);) {
    if (word.characters > kMostWordCharacters) continue;
    const auto it = words_.find(word.text);
    if (it != words_.end())
      ++it->second;
    else
      words_.emplace(word.text, 1);
  }
}

std::vector<std::string> build_pieces(const WordCounts& counts, std::int64_t size) {
  const std::int64_t least = std::ssize(special_pieces()) + 1;
  check_usage(size >= least, "vocabulary", "a vocabulary of {} pieces is too small; expected {} at least",
              size, least);
  return Joiner(counts).pieces(size);
}

}  // namespace ssn
