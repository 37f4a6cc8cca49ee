// Vocabulary files, and vocabularies built from text.
#include "datasets/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "data_files.h"
#include "datasets/text_file.h"
#include "datasets/tokenizer.h"
#include "datasets/vocabulary_builder.h"
#include "runtime/random.h"

namespace ssn::test {
namespace {

void write_text(const std::string& path, std::string_view text) {
  write_plain(path, Bytes(text.begin(), text.end()));
}

std::vector<std::string> pieces_of(std::string_view text, std::int64_t size, bool cased = false) {
  WordCounts counts;
  counts.add(text, cased);
  return build_pieces(counts, size);
}

TEST(Vocabulary, ReadsWhatItWrites) {
  const TempDir dir;
  const Vocabulary built(pieces_of("low lower lowest \xc3\xa9t\xc3\xa9 low lower", 100), "built");
  write_text(dir / "vocab.txt", built.text());
  const Vocabulary read = Vocabulary::read(dir / "vocab.txt");
  EXPECT_EQ(read.pieces(), built.pieces());
  EXPECT_EQ(read.pad(), 0);
  EXPECT_EQ(read.mask(), 4);

  write_text(dir / "other.txt",
             "\xef\xbb\xbfthe\r\n[MASK]\n[SEP] \n[CLS]\n##s\n[UNK]\n[PAD]\n##\n#");  // as others end lines
  const Vocabulary other = Vocabulary::read(dir / "other.txt");
  EXPECT_EQ(other.size(), 9);
  EXPECT_EQ(other.first(), 3);
  EXPECT_EQ(other.separator(), 2);
  EXPECT_EQ(other.unknown(), 5);
  EXPECT_EQ(other.find("the", false), 0);
  EXPECT_EQ(other.find("s", true), 4);
  EXPECT_EQ(other.find("s", false), Vocabulary::kNone);
  EXPECT_EQ(other.find("##", false), 7);
}

TEST(Vocabulary, NamesWhatIsWrongWithAFile) {
  const TempDir dir;
  const std::string path = dir / "vocab.txt";
  const auto expect_bad = [&](std::string_view text, std::vector<std::string> parts) {
    write_text(path, text);
    parts.push_back(path + ": ");
    expect_error([&] { Vocabulary::read(path); }, parts);
  };
  const std::string good = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  expect_bad("", {"is empty"});
  expect_bad(good + "the\nof\nthe\n", {"line 8 repeats line 6: 'the'"});
  expect_bad(good + "the\n\nof\n", {"line 7 is empty; expected a piece a line"});
  expect_bad(good + "the\n \t\n", {"line 7 is empty"});
  expect_bad("[PAD]\n[UNK]\n[SEP]\n[MASK]\nthe\n",
             {"[CLS] is missing", "[PAD], [UNK], [CLS], [SEP], [MASK]"});
  expect_bad(good + std::string(4000, 'a') + "\n\xff\n", {"line 7 is not UTF-8"});
  expect_bad(good + std::string("a\0b", 3), {"is not a text file: byte 32 is NUL"});
  expect_error([&] { Vocabulary::read(dir / "none"); }, {"none: cannot be read: No such file"});
}

TEST(TextFile, SaysWhereAFileIsNotText) {
  const TempDir dir;
  const std::string path = dir / "text";
  write_text(path, "caf\xe9 au lait");
  expect_error(
      [&] { read_text_file(path); },
      {path, "is not UTF-8: 1 of its 12 bytes belong to no character, the first is byte 3", "iconv"});
  const std::string mostly = std::string(5000, 'x') + "\xe9 and so on";  // a slip, which the tokenizer drops
  write_gzip(path, Bytes(mostly.begin(), mostly.end()));
  EXPECT_EQ(read_text_file(path), mostly);
}

/// The example of Sennrich et al. (2016), whose joins can be followed by hand.
TEST(VocabularyBuilder, JoinsTheMostFrequentPairs) {
  std::string text;
  const std::pair<const char*, int> kWords[] = {
      {"low", 5}, {"lowest", 2}, {"newer", 6}, {"wider", 3}, {"new", 2}};
  for (const auto& [word, count] : kWords)
    for (int i = 0; i < count; ++i) text += std::string(word) + " ";
  std::vector<std::string> pieces = pieces_of(text, 1000);
  EXPECT_EQ(std::vector(pieces.begin(), pieces.begin() + 5), special_pieces());
  const auto at = [&](std::string_view piece) { return std::ranges::find(pieces, piece) - pieces.begin(); };
  for (const char* piece : {"low", "newer", "wider", "new", "lowest", "##er"})
    EXPECT_LT(at(piece), std::ssize(pieces)) << piece;
  EXPECT_LT(at("##er"), at("new"));
  EXPECT_LT(at("low"), at("lowest"));
  // Whatever the size, the most frequent pieces come first.
  const std::vector<std::string> few = pieces_of(text, 25);
  EXPECT_EQ(few.size(), 25u);
  EXPECT_EQ(pieces_of("a", 1000),
            (std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"}));
  expect_error<UsageError>([] { pieces_of("a", 5); }, {"a vocabulary of 5 pieces is too small; expected 6"});
}

/// The same, slowly: every pair is counted anew for each join.
std::vector<std::string> naive_pieces(const WordCounts& counts, std::int64_t size) {
  std::map<std::string, std::int64_t> characters;
  std::vector<std::pair<std::vector<std::string>, std::int64_t>> words;
  for (const auto& [word, count] : counts.words()) {
    std::vector<std::string> symbols;
    for (const char c : word) symbols.push_back((symbols.empty() ? "" : "##") + std::string(1, c));
    for (const std::string& symbol : symbols) characters[symbol] += count;
    words.emplace_back(symbols, count);
  }
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [symbol, count] : characters) sorted.emplace_back(-count, symbol);
  std::ranges::sort(sorted);
  std::map<std::string, std::int64_t> ids;
  for (const auto& [count, symbol] : sorted) ids.emplace(symbol, std::ssize(ids));
  std::vector<std::string> pieces = special_pieces();
  auto next = sorted.begin();
  while (std::ssize(pieces) < size) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> pairs;
    std::map<std::int64_t, std::string> names;
    for (const auto& [name, id] : ids) names[id] = name;
    for (const auto& [symbols, count] : words)
      for (std::size_t i = 1; i < symbols.size(); ++i) pairs[{ids[symbols[i - 1]], ids[symbols[i]]}] += count;
    const auto best = std::ranges::max_element(pairs, {}, [](const auto& pair) { return pair.second; });
    const bool any = best != pairs.end() && best->second >= 2;
    if (next != sorted.end() && (std::ssize(pieces) < size / 2 || !any || -next->first >= best->second)) {
      pieces.push_back((next++)->second);
      continue;
    }
    if (!any) break;
    const std::string left = names[best->first.first], right = names[best->first.second];
    const std::string joined = left + right.substr(2);
    if (ids.emplace(joined, std::ssize(ids)).second) pieces.push_back(joined);
    for (auto& [symbols, count] : words)
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        if (symbols[i] == left && symbols[i + 1] == right) {
          symbols[i] = joined;
          symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return pieces;
}

TEST(VocabularyBuilder, GivesWhatCountingAnewGives) {
  const Random random(3, "words");
  std::uint64_t draw = 0;
  for (const std::int64_t letters : {2, 3, 6}) {
    WordCounts counts;
    for (int i = 0; i < 150; ++i) {
      std::string word;
      for (std::int64_t n = 1 + random.below(9, draw++); n > 0; --n)
        word.push_back(static_cast<char>('a' + random.below(letters, draw++)));
      for (std::int64_t n = 1 + random.below(4, draw++); n > 0; --n) counts.add(word, false);
    }
    for (const std::int64_t size : {6, 9, 12, 40, 10000})
      EXPECT_EQ(build_pieces(counts, size), naive_pieces(counts, size)) << letters << " letters, " << size;
  }
}

TEST(VocabularyBuilder, DependsOnTheCountsAlone) {
  const std::string text = "the cat sat on the mat; the dog sat on the cat, and the cats sat on dogs";
  const std::string reversed(text.rbegin(), text.rend());
  WordCounts one, two;
  one.add(text + " " + reversed, false);
  two.add(reversed, false), two.add(text, false);
  EXPECT_EQ(build_pieces(one, 60), build_pieces(two, 60));
  EXPECT_NE(pieces_of("The the", 60, true), pieces_of("The the", 60, false));
}

TEST(VocabularyBuilder, LeavesOutWhatTheTokenizerDoesNotCut) {
  const std::vector<std::string> pieces = pieces_of(std::string(101, 'q') + " ok ok", 60);
  EXPECT_EQ(std::ranges::count(pieces, "ok"), 1);
  EXPECT_EQ(std::ranges::count(pieces, "q"), 0);
}

}  // namespace
}  // namespace ssn::test
