#include "datasets/words.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>

#include "runtime/error.h"

namespace ssn {
namespace {

enum class Plain : std::uint8_t { no, space, letter, punctuation };  // letter: digits too

constexpr std::array<Plain, 256> make_plain() {
  std::array<Plain, 256> kinds{};  // control characters and what is not ASCII: no
  for (int c = 33; c < 127; ++c) {
    const bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    kinds[c] = letter ? Plain::letter : Plain::punctuation;
  }
  for (const char c : {' ', '\t', '\n', '\r'}) kinds[c] = Plain::space;
  return kinds;
}
constexpr std::array<Plain, 256> kPlain = make_plain();

Plain plain(char byte) {
  return kPlain[static_cast<unsigned char>(byte)];
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

UChar32 icu(char32_t c) {
  return static_cast<UChar32>(c);
}

/// White space of the reference's rule, and the line and paragraph separators, at which Python's split()
/// cuts.
bool is_space(char32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || c == 0x2028 || c == 0x2029 ||
         u_charType(icu(c)) == U_SPACE_SEPARATOR;
}

/// What the reference's clean-up drops.
bool is_dropped(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const int type = u_charType(icu(c));
  return c == 0xfffd || type == U_CONTROL_CHAR || type == U_FORMAT_CHAR;
}

bool is_punctuation(char32_t c) {
  if (c < 128) return kPlain[c] == Plain::punctuation;
  return (U_GET_GC_MASK(icu(c)) & U_GC_P_MASK) != 0;
}

bool is_ideograph(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
      {0x2b740, 0x2b81f}, {0x2b820, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return std::ranges::any_of(kRanges,
                             [&](const auto& range) { return c >= range.first && c <= range.second; });
}

const UNormalizer2* decomposer() {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* nfd = unorm2_getNFDInstance(&error);
  check(U_SUCCESS(error) != 0, "text", "ICU cannot decompose characters: {}", u_errorName(error));
  return nfd;
}

/// Whether a capital sigma at `i` ends its word (Unicode, table 3-17): then it becomes another letter.
template <class Characters>
bool ends_word(const Characters& characters, std::size_t i) {
  const auto ignorable = [&](std::size_t k) {
    return u_hasBinaryProperty(icu(characters[k].code), UCHAR_CASE_IGNORABLE) != 0;
  };
  const auto cased = [&](std::size_t k) {
    return u_hasBinaryProperty(icu(characters[k].code), UCHAR_CASED) != 0;
  };
  std::size_t before = i, after = i + 1;
  while (before > 0 && ignorable(before - 1)) --before;
  while (after < characters.size() && ignorable(after)) ++after;
  return before > 0 && cased(before - 1) && (after == characters.size() || !cased(after));
}

}  // namespace

bool WordReader::next(Word& word) {
  for (;;) {
    if (next_character_ < characters_.size()) return take_word(word), true;
    if (at_ < plain_end_) return take_plain(word), true;
    while (at_ < text_.size() && plain(text_[at_]) == Plain::space) ++at_;
    if (at_ == text_.size()) return false;
    plain_end_ = at_;
    while (plain_end_ < text_.size() && plain(text_[plain_end_]) > Plain::space) ++plain_end_;
    if (plain_end_ == text_.size() || plain(text_[plain_end_]) == Plain::space) continue;
    plain_end_ = at_;
    read_token();
  }
}

void WordReader::take_plain(Word& word) {
  const std::size_t begin = at_++;
  if (plain(text_[begin]) == Plain::letter)
    while (at_ < plain_end_ && plain(text_[at_]) == Plain::letter) ++at_;
  std::string_view text = text_.substr(begin, at_ - begin);
  if (!cased_) {
    word_.resize(text.size());
    std::ranges::transform(text, word_.begin(), lower);
    text = word_;
  }
  word = {.text = text, .characters = std::ssize(text), .begin = begin, .begins = {}, .ends = {}};
}

void WordReader::take_word(Word& word) {
  word_.clear(), begins_.clear(), ends_.clear();
  const std::size_t first = next_character_;
  do {
    const Character& c = characters_[next_character_++];
    std::array<char, U8_MAX_LENGTH> bytes{};
    std::size_t count = 0;
    U8_APPEND_UNSAFE(bytes.data(), count, icu(c.code));
    word_.append(bytes.data(), count);
    begins_.insert(begins_.end(), count, c.begin);
    ends_.insert(ends_.end(), count, c.end);
  } while (!is_punctuation(characters_[next_character_ - 1].code) && next_character_ < characters_.size() &&
           !is_punctuation(characters_[next_character_].code));
  word = {.text = word_,
          .characters = static_cast<std::int64_t>(next_character_ - first),
          .begin = begins_[0],
          .begins = begins_,
          .ends = ends_};
}

/// The characters up to the next white space or ideograph.
void WordReader::read_token() {
  characters_.clear(), next_character_ = 0;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text_.data());
  while (at_ < text_.size()) {
    const std::size_t begin = at_;
    UChar32 code = 0;
    U8_NEXT(bytes, at_, text_.size(), code);
    const auto c = static_cast<char32_t>(code);
    if (code < 0 || is_dropped(c)) continue;
    const bool space = is_space(c), ideograph = is_ideograph(c);
    if ((space || ideograph) && !characters_.empty()) {
      at_ = begin;
      break;
    }
    if (space) continue;
    characters_.push_back({c, begin, at_});
    if (ideograph) break;
  }
  if (!cased_) normalise();
}

/// Lower case, decomposed (NFD), without accents.
void WordReader::normalise() {
  static const UNormalizer2* const nfd = decomposer();
  scratch_.clear();
  for (std::size_t i = 0; i < characters_.size(); ++i) {
    const Character& c = characters_[i];
    constexpr char32_t kSigma = 0x3a3, kFinalSigma = 0x3c2, kFirstDecomposed = 0xc0;
    // U+0130 becomes i and an accent, which would be dropped; this gives i alone.
    auto code = static_cast<char32_t>(u_tolower(icu(c.code)));
    if (c.code == kSigma && ends_word(characters_, i)) code = kFinalSigma;
    std::array<UChar, 32> parts{};
    UErrorCode error = U_ZERO_ERROR;
    const std::int32_t count = code < kFirstDecomposed ? -1
                                                       : unorm2_getDecomposition(nfd, icu(code), parts.data(),
                                                                                 std::ssize(parts), &error);
    if (count < 0) scratch_.push_back({code, c.begin, c.end});
    for (std::int32_t k = 0; k < count;) {
      UChar32 part = 0;
      U16_NEXT(parts, k, count, part);
      scratch_.push_back({static_cast<char32_t>(part), c.begin, c.end});
    }
  }
  const auto combining = [](const Character& c) { return u_getCombiningClass(icu(c.code)); };
  for (auto at = scratch_.begin(); at != scratch_.end();) {
    const auto end = std::find_if(at, scratch_.end(), [&](const Character& c) { return combining(c) == 0; });
    if (end - at > 1) std::ranges::stable_sort(at, end, {}, combining);
    at = end == scratch_.end() ? end : end + 1;
  }
  std::erase_if(scratch_, [](const Character& c) { return u_charType(icu(c.code)) == U_NON_SPACING_MARK; });
  characters_.swap(scratch_);
}

}  // namespace ssn
