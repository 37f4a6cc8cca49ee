#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ssn {

/// Documents in an invented language of about a hundred words, which a network can learn: articles and
/// adjectives agree with their noun in gender and number, verbs with their subject's number; a noun has a few
/// adjectives and verbs, a verb a few objects, and a sentence begins with what the one before ended with.
/// Depends on the arguments alone; the language is the seed's, the documents the stream's.
std::vector<std::string> synthetic_text(std::int64_t documents, std::uint64_t seed, std::uint64_t stream);

}  // namespace ssn
