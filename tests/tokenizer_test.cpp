// The tokenizer, against what BERT's gives (tests/data/make_tokenizer_cases.py).
#include "datasets/tokenizer.h"

#include <gtest/gtest.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "datasets/words.h"
#include "runtime/config.h"
#include "runtime/random.h"

namespace ssn::test {
namespace {

std::shared_ptr<const Vocabulary> vocabulary_of(std::vector<std::string> pieces) {
  return std::make_shared<const Vocabulary>(std::move(pieces), "test");
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    int byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

TEST(Tokenizer, GivesWhatTheReferenceGives) {
  const auto tests = std::filesystem::path(build::source_data_dir).parent_path() / "tests";
  std::ifstream file(tests / "data/tokenizer_cases.json");
  const auto data = nlohmann::json::parse(file);
  const auto vocabulary = vocabulary_of(data["vocabulary"]);
  int cases = 0;
  for (const auto& c : data["cases"]) {
    const std::string text = bytes_of(c["bytes"]);
    const Tokenizer tokenizer(vocabulary, c["cased"]);
    nlohmann::json found = nlohmann::json::array();
    std::vector<std::int32_t> ids;
    for (const Token& token : tokenizer.tokenize(text)) {
      found.push_back({vocabulary->pieces()[token.id], token.begin, token.end});
      ids.push_back(token.id);
    }
    EXPECT_EQ(found, c["tokens"]) << text << " (" << c["bytes"] << ")";
    std::vector<std::int32_t> encoded;
    tokenizer.encode(text, encoded);
    EXPECT_EQ(encoded, ids) << text;
    ++cases;
  }
  EXPECT_GT(cases, 200);
}

/// Whatever the bytes, offsets are inside the text, and words cut one by one give what they give together.
TEST(Tokenizer, TakesAnyBytes) {
  std::vector<std::string> pieces = special_pieces();
  for (const char* piece : {"a", "b", "c", "d", "e", "##a", "##b", "##c", "##d", "##e", ","})
    pieces.emplace_back(piece);
  const Tokenizer tokenizer(vocabulary_of(std::move(pieces)), false);
  const Random random(1, "bytes");
  const std::string parts[] = {
      "a",    "B",        "cde",          "\xc3\xa9", "\xcc\x81", ",",         "\xe4\xbd\xa0",
      "\xff", "\xe4\xbd", "\xe2\x80\x94", "\x1",      "\xce\xa3", {'\0', 'a'}, "\xf0\x9f\x98\x80"};
  std::uint64_t draw = 0;
  for (int round = 0; round < 200; ++round) {
    std::string whole;
    std::vector<std::int32_t> expected, found;
    for (int word = 0; word < 5; ++word) {
      std::string text;
      for (std::int64_t n = random.below(6, draw++); n > 0; --n)
        text += parts[random.below(std::ssize(parts), draw++)];
      tokenizer.encode(text, expected);
      whole += text + " ";
    }
    for (const Token& token : tokenizer.tokenize(whole)) {
      EXPECT_LT(token.begin, token.end);
      EXPECT_LE(token.end, whole.size());
      found.push_back(token.id);
    }
    EXPECT_EQ(found, expected) << whole;
  }
}

}  // namespace
}  // namespace ssn::test
