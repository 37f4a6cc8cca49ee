#include "datasets/synthetic_text.h"

#include <array>
#include <set>

#include "runtime/random.h"

namespace ssn {
namespace {

constexpr std::int64_t kGenders = 4, kNouns = 12, kVerbs = 8;  // nouns and verbs of each gender
constexpr std::int64_t kArticles = 3, kAdjectives = 20, kTopics = 3;
/// By gender and number.
constexpr std::array<std::array<std::string_view, 2>, kGenders> kEndings = {
    {{"a", "as"}, {"o", "os"}, {"un", "une"}, {"ir", "iri"}}};

/// Numbers drawn one after another.
class Draws {
 public:
  Draws(const Random& random, std::uint64_t first) : random_(random), next_(first) {}
  std::int64_t below(std::int64_t n) { return random_.below(n, next_++); }

 private:
  Random random_;
  std::uint64_t next_;
};

struct Noun {
  std::int64_t gender = 0, number = 0;
  std::string stem = {};
};

class Language {
 public:
  explicit Language(std::uint64_t seed);
  std::string document(Draws& draws) const;

 private:
  struct Verb {
    std::string stem;
    std::int64_t object = 0;  // the gender it wants
  };
  std::string agreeing(const std::string& stem, const Noun& noun) const {
    return stem + std::string(kEndings[noun.gender][noun.number]);
  }
  void phrase(Draws& draws, Noun noun, std::string& to) const;

  std::vector<std::string> articles_, adjectives_;
  std::vector<std::vector<std::string>> nouns_;  // of each gender
  std::vector<std::vector<Verb>> verbs_;         // by their subject's gender
};

Language::Language(std::uint64_t seed) {
  Draws draws(Random(seed, "synthetic text/words"), 0);
  std::set<std::string> used;
  const auto stem = [&](std::int64_t syllables) {
    constexpr std::string_view kConsonants = "bdfghklmnprstvz", kVowels = "aeiou";
    for (;;) {
      std::string text;
      for (std::int64_t i = 0; i < syllables; ++i) {
        if (i > 0) text += kVowels[draws.below(std::ssize(kVowels))];
        text += kConsonants[draws.below(std::ssize(kConsonants))];
      }
      if (used.insert(text).second) return text;
    }
  };
  for (std::int64_t i = 0; i < kArticles; ++i) articles_.push_back(stem(1));
  for (std::int64_t i = 0; i < kAdjectives; ++i) adjectives_.push_back(stem(3));
  nouns_.resize(kGenders), verbs_.resize(kGenders);
  for (std::int64_t gender = 0; gender < kGenders; ++gender) {
    for (std::int64_t i = 0; i < kNouns; ++i) nouns_[gender].push_back(stem(2));
    for (std::int64_t i = 0; i < kVerbs; ++i) verbs_[gender].push_back({stem(3), draws.below(kGenders)});
  }
}

/// Article, perhaps an adjective, and the noun.
void Language::phrase(Draws& draws, Noun noun, std::string& to) const {
  to += agreeing(articles_[draws.below(kArticles)], noun) + " ";
  if (draws.below(2) == 0) to += agreeing(adjectives_[draws.below(kAdjectives)], noun) + " ";
  to += agreeing(noun.stem, noun);
}

/// What the document speaks of in that gender.
Noun topic(Draws& draws, const std::vector<Noun>& topics, std::int64_t gender) {
  Noun noun = topics[gender * kTopics + draws.below(kTopics)];
  noun.number = draws.below(2);
  return noun;
}

std::string Language::document(Draws& draws) const {
  std::vector<Noun> topics;
  for (std::int64_t i = 0; i < kGenders * kTopics; ++i) {
    const std::int64_t gender = i / kTopics;
    topics.push_back({.gender = gender, .stem = nouns_[gender][draws.below(kNouns)]});
  }
  std::string text;
  for (std::int64_t sentences = 6 + draws.below(8); sentences > 0; --sentences) {
    const Noun subject = topic(draws, topics, draws.below(kGenders));
    const Verb& verb = verbs_[subject.gender][draws.below(kVerbs)];
    phrase(draws, subject, text);
    text += " " + verb.stem + (subject.number == 0 ? "et " : "ent ");
    phrase(draws, topic(draws, topics, verb.object), text);
    text += sentences % 4 == 0 ? ".\n" : ". ";
  }
  return text;
}

}  // namespace

std::vector<std::string> synthetic_text(std::int64_t documents, std::uint64_t seed, std::uint64_t stream) {
  constexpr std::uint64_t kDrawsOfDocument = 1024;
  const Language language(seed);
  const Random random(seed, Random::hash("synthetic text/documents") + stream);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < documents; ++i) {
    Draws draws(random, static_cast<std::uint64_t>(i) * kDrawsOfDocument);
    texts.push_back(language.document(draws));
  }
  return texts;
}

}  // namespace ssn
