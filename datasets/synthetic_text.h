#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ssn {

/// Documents in an invented language of some 400 words, which a network can learn: articles, adjectives and
/// nouns agree in gender and number, verbs agree with their subject's number and want subjects and objects of
/// certain genders, and a document speaks of a few nouns again and again. Depends on the arguments alone; the
/// language is the seed's, the documents the stream's.
std::vector<std::string> synthetic_text(std::int64_t documents, std::uint64_t seed, std::uint64_t stream);

}  // namespace ssn
