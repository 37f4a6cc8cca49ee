#include "datasets/synthetic_text.h"

#include <array>
#include <set>
#include <string_view>

#include "runtime/random.h"

namespace ssn {
namespace {

constexpr std::int64_t kGenders = 4, kNouns = 4;  // nouns of each gender
constexpr std::int64_t kAdjectives = 8, kVerbs = 10;
constexpr std::int64_t kHabits = 2;  // adjectives and verbs of a noun, objects of a verb
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

using Habits = std::array<std::int64_t, kHabits>;

struct Noun {
  std::string stem;
  std::int64_t gender = 0;
  Habits adjectives = {}, verbs = {};
};

class Language {
 public:
  explicit Language(std::uint64_t seed);
  std::string document(Draws& draws) const;

 private:
  struct Verb {
    std::string stem;
    Habits objects = {};
  };
  void phrase(Draws& draws, const std::string& article, const Noun& noun, std::int64_t number,
              std::string& to) const;

  std::string definite_, indefinite_;
  std::vector<std::string> adjectives_;
  std::vector<Noun> nouns_;
  std::vector<Verb> verbs_;
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
  const auto habits = [&](std::int64_t n) {
    Habits result{};
    for (std::int64_t& habit : result) habit = draws.below(n);
    return result;
  };
  definite_ = stem(1), indefinite_ = stem(1);
  for (std::int64_t i = 0; i < kAdjectives; ++i) adjectives_.push_back(stem(3));
  for (std::int64_t i = 0; i < kGenders * kNouns; ++i)
    nouns_.push_back({stem(2), i / kNouns, habits(kAdjectives), habits(kVerbs)});
  for (std::int64_t i = 0; i < kVerbs; ++i) verbs_.push_back({stem(3), habits(std::ssize(nouns_))});
}

/// Article, perhaps an adjective, and the noun.
void Language::phrase(Draws& draws, const std::string& article, const Noun& noun, std::int64_t number,
                      std::string& to) const {
  const std::string_view ending = kEndings[noun.gender][number];
  to.append(article).append(ending).append(" ");
  if (draws.below(2) == 0)
    to.append(adjectives_[noun.adjectives[draws.below(kHabits)]]).append(ending).append(" ");
  to.append(noun.stem).append(ending);
}

/// What one sentence ends with, the next begins with.
std::string Language::document(Draws& draws) const {
  std::string text;
  std::int64_t subject = draws.below(std::ssize(nouns_)), number = draws.below(2);
  for (std::int64_t sentences = 6 + draws.below(8); sentences > 0; --sentences) {
    phrase(draws, definite_, nouns_[subject], number, text);
    const Verb& verb = verbs_[nouns_[subject].verbs[draws.below(kHabits)]];
    text += " " + verb.stem + (number == 0 ? "et " : "ent ");
    subject = verb.objects[draws.below(kHabits)], number = draws.below(2);
    phrase(draws, indefinite_, nouns_[subject], number, text);
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
