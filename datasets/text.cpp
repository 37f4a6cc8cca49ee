#include "datasets/text.h"

#include <algorithm>
#include <filesystem>

#include "datasets/corpus.h"
#include "datasets/synthetic_text.h"
#include "datasets/text_set.h"
#include "datasets/tokenizer.h"
#include "datasets/vocabulary_builder.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {

using Documents = std::vector<std::string_view>;

constexpr std::int64_t kUsualVocabulary = 8000;

void check_no_images(const DatasetOptions& options) {
  check_usage(!options.input, "--data", "--input is the size of images; text has --length");
}

void check_same(const Vocabulary& given, const std::string& path, const std::vector<std::string>& wanted) {
  const auto [mine, theirs] = std::ranges::mismatch(given.pieces(), wanted);
  const auto line = mine - given.pieces().begin() + 1;
  const auto shown = [](auto at, const auto& pieces) {
    return at == pieces.end() ? std::string("missing") : fmt::format("'{}'", *at);
  };
  check_usage(mine == given.pieces().end() && theirs == wanted.end(), "--vocab",
              "{} is not the checkpoint's vocabulary: line {} is {}, there it is {}", path, line,
              shown(mine, given.pieces()), shown(theirs, wanted));
}

/// Of --vocab.
Vocabulary given_vocabulary(const TextOptions& text) {
  check_usage(text.vocabulary_size == 0, "--vocab-size",
              "{} is for a vocabulary that is built; --vocab {} gives one: leave one of them out",
              text.vocabulary_size, text.vocabulary);
  return Vocabulary::read(text.vocabulary);
}

/// The checkpoint's (from which a file that still exists must not differ), the file's, or one built from the
/// documents.
std::shared_ptr<const Vocabulary> find_vocabulary(const DatasetOptions& options, const Documents& documents,
                                                  bool cased) {
  const TextOptions& text = options.text;
  std::error_code error;
  if (options.facts) {
    if (!text.vocabulary.empty() && std::filesystem::exists(text.vocabulary, error))
      check_same(Vocabulary::read(text.vocabulary), text.vocabulary, options.facts->vocabulary);
    return std::make_shared<Vocabulary>(options.facts->vocabulary, "the checkpoint's vocabulary");
  }
  if (!text.vocabulary.empty()) return std::make_shared<Vocabulary>(given_vocabulary(text));
  WordCounts counts;
  for (const std::string_view document : documents) counts.add(document, cased);
  const std::int64_t size = text.vocabulary_size > 0 ? text.vocabulary_size : kUsualVocabulary;
  return std::make_shared<Vocabulary>(build_pieces(counts, size), "the text's vocabulary");
}

TokenDocuments encode(const Tokenizer& tokenizer, const Documents& documents) {
  constexpr std::int64_t kDocuments = 64;  // at a time
  const std::int64_t count = std::ssize(documents);
  std::vector<TokenDocuments> chunks(static_cast<std::size_t>((count + kDocuments - 1) / kDocuments));
  parallel_chunks(count, kDocuments, [&](std::int64_t index, std::int64_t begin, std::int64_t end) {
    TokenDocuments& chunk = chunks[index];
    for (std::int64_t i = begin; i < end; ++i) {
      tokenizer.encode(documents[i], chunk.tokens);
      chunk.ends.push_back(std::ssize(chunk.tokens));
    }
  });
  TokenDocuments all;
  for (TokenDocuments& chunk : chunks) {
    const std::int64_t first = std::ssize(all.tokens);
    for (const std::int64_t end : chunk.ends) all.ends.push_back(first + end);
    all.tokens.insert(all.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    chunk = {};
  }
  return all;
}

Dataset make_dataset(std::string name, const Documents& train, const Documents& test,
                     const DatasetOptions& options) {
  const auto& facts = options.facts;
  check_no_images(options);
  check_usage(!facts || facts->input.length > 0, "--data", "{} has text, the network reads images", name);
  const bool cased = facts ? facts->cased : options.text.cased;
  const std::int64_t length = facts ? facts->input.length : options.text.length;
  const auto vocabulary = find_vocabulary(options, train, cased);
  const Tokenizer tokenizer(vocabulary, cased);
  const auto samples = [&](const Documents& documents, const char* what) {
    auto set = std::make_shared<TextSamples>(encode(tokenizer, documents), vocabulary, length);
    check(set->size() > 0, "--data", "{}: there is no word in the text for {}", name, what);
    return set;
  };
  return {.name = name,
          .train = samples(train, "training"),
          .test = samples(test, "testing"),
          .facts = {.input = {.length = length, .vocabulary = vocabulary->size()},
                    .vocabulary = vocabulary->pieces(),
                    .cased = cased}};
}

}  // namespace

Dataset load_text(const std::string& path, const DatasetOptions& options) {
  const Corpus corpus = read_corpus(path, options.skip_bad);
  return make_dataset("text", corpus.train, corpus.test, options);
}

Dataset load_synthetic_text(std::int64_t documents, const DatasetOptions& options) {
  const auto train = synthetic_text(documents, options.seed, 0);
  const auto test = synthetic_text(std::max<std::int64_t>(1, documents / 5), options.seed, 1);
  return make_dataset("synthetic-text", {train.begin(), train.end()}, {test.begin(), test.end()}, options);
}

std::optional<KnownSet> known_text(const DatasetOptions& options) {
  const TextOptions& text = options.text;
  check_no_images(options);
  std::int64_t vocabulary = text.vocabulary_size;
  if (!text.vocabulary.empty()) vocabulary = given_vocabulary(text).size();
  if (vocabulary == 0) return {};
  return KnownSet{.input = {.length = text.length, .vocabulary = vocabulary}, .samples = 0};
}

}  // namespace ssn
