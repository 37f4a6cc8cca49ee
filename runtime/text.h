#pragma once
#include <span>
#include <string>
#include <string_view>

namespace ssn {

/// The candidate with the fewest edits (insertion, deletion, replacement, swap of neighbours; case counts for
/// nothing), if a slip of the hand may explain them: at most a third of the word's length, but one at least.
/// Otherwise empty.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// False if a byte belongs to no character: such text fits in neither TOML nor JSON.
bool is_utf8(std::string_view text);

/// What to do about an unknown word, to end a message with: "did you mean 'mnist'?", or "known: a, b, c".
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

}  // namespace ssn
