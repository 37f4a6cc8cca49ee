// Text as a data set: documents, sequences, masks, and what is wrong with files.
#include "datasets/text_set.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>
#include <set>

#include "data_files.h"
#include "datasets/corpus.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "datasets/synthetic_text.h"
#include "datasets/words.h"
#include "runtime/parallel.h"

namespace ssn::test {
namespace {

using Ids = std::vector<std::int32_t>;

void write_text(const std::string& path, std::string_view text) {
  write_plain(path, Bytes(text.begin(), text.end()));
}

Ids ids_of(const Tensor& tensor) {
  const auto span = tensor.span<std::int32_t>();
  return {span.begin(), span.end()};
}

/// Some pieces that are nothing but numbers.
std::shared_ptr<const Vocabulary> numbers(int count) {
  std::vector<std::string> pieces = special_pieces();
  while (std::ssize(pieces) < count) pieces.push_back(fmt::format("w{}", pieces.size()));
  return std::make_shared<const Vocabulary>(std::move(pieces), "test");
}

/// Documents of these lengths, whose tokens count from 100.
TokenDocuments documents(const std::vector<std::int64_t>& lengths) {
  TokenDocuments result;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i)
      result.tokens.push_back(100 + static_cast<std::int32_t>(result.tokens.size()));
    result.ends.push_back(std::ssize(result.tokens));
  }
  return result;
}

/// The tokens as they were before masking.
Ids unmasked(const Batch& batch) {
  Ids tokens = ids_of(batch.tokens);
  const Ids predicted = ids_of(batch.predicted), labels = ids_of(batch.labels);
  for (std::size_t i = 0; i < predicted.size(); ++i) tokens[predicted[i]] = labels[i];
  return tokens;
}

TEST(TextSamples, CutsDocumentsIntoSequences) {
  const TextSamples set(documents({7, 0, 4, 1}), numbers(120), 6);
  ASSERT_EQ(set.size(), 4);
  const Batch batch = set.make(Ids{0, 1, 2, 3}, Random(1, "x"), true);
  EXPECT_EQ(unmasked(batch), (Ids{2, 100, 101, 102, 103, 3,  //
                                  2, 104, 105, 106, 3,   0,  //
                                  2, 107, 108, 109, 110, 3,  //
                                  2, 111, 3,   0,   0,   0}));
  EXPECT_EQ(ids_of(batch.lengths), (Ids{6, 5, 6, 3}));
  EXPECT_EQ(set.make({}, Random(1, "x"), true).tokens.shape(), (Shape{0, 6}));
  expect_error<UsageError>([] { TextSamples(documents({3}), numbers(9), 2); }, {"--length 2 is too short"});
}

TEST(TextSamples, MasksAsBertDoes) {
  constexpr std::int64_t kSequences = 400, kTokens = 126;
  const TextSamples set(documents(std::vector<std::int64_t>(kSequences, kTokens)), numbers(60000), 128);
  Ids samples(kSequences);
  std::iota(samples.begin(), samples.end(), 0);
  const Batch batch = set.make(samples, Random(1, "x"), true);
  EXPECT_EQ(set.labels_of(5), 19);
  ASSERT_EQ(batch.size(), 19 * kSequences);
  const Ids tokens = ids_of(batch.tokens), predicted = ids_of(batch.predicted), labels = ids_of(batch.labels);
  std::array<double, kTokens> places{};
  int masked = 0, kept = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    ASSERT_TRUE(i == 0 || predicted[i - 1] < predicted[i]);
    const std::int64_t place = predicted[i] % 128 - 1;
    ASSERT_TRUE(place >= 0 && place < kTokens) << "[CLS] and [SEP] are not predicted";
    ++places[place];
    masked += tokens[predicted[i]] == 4;
    kept += tokens[predicted[i]] == labels[i];
  }
  const auto count = static_cast<double>(predicted.size());  // standard deviation of a share: below 0.005
  EXPECT_NEAR(masked / count, 0.8, 0.02);
  EXPECT_NEAR(kept / count, 0.1, 0.02);
  double chi_square = 0;
  for (const double n : places)
    chi_square += (n - count / kTokens) * (n - count / kTokens) / (count / kTokens);
  EXPECT_LT(chi_square, kTokens + 4 * std::sqrt(2.0 * kTokens));
}

TEST(TextSamples, LabelsDependOnTheLengthAlone) {
  const TextSamples set(documents({1, 2, 9, 10, 11, 20, 62}), numbers(300), 64);
  const Ids expected{1, 1, 1, 2, 2, 3, 9};
  for (std::int32_t sample = 0; sample < set.size(); ++sample) {
    EXPECT_EQ(set.labels_of(sample), expected[sample]);
    EXPECT_EQ(set.make(Ids{sample}, Random(1, "x"), true).size(), expected[sample]);
    EXPECT_EQ(set.make(Ids{sample}, Random(2, "x"), false).size(), expected[sample]);
  }
}

TEST(TextSamples, MasksDependOnTheSampleAndTheDrawsAlone) {
  const TextSamples set(documents({50, 50, 50, 50}), numbers(400), 52);
  const auto made = [&](const Ids& samples, std::string_view draws, bool training) {
    return ids_of(set.make(samples, Random(7, draws), training).tokens);
  };
  const Ids one = made({2}, "epoch 0", true), all = made({3, 2, 0}, "epoch 0", true);
  EXPECT_EQ(Ids(all.begin() + 52, all.begin() + 104), one);
  EXPECT_NE(made({2}, "epoch 1", true), one);
  EXPECT_EQ(made({2}, "epoch 0", false), made({2}, "epoch 1", false));
}

/// The parts of a batch, put together, are the batch.
TEST(TextSamples, PartsMakeTheBatch) {
  const Dataset data = load_dataset("synthetic-text:60", {.text = {.length = 40}});
  const Loader loader(data.train, {.batch = 14, .seed = 3});
  for (const std::int64_t parts : {1, 2, 3, 5}) {
    for (std::int64_t step = 0; step < 2; ++step) {
      const Batch whole = loader.batch(1, step);
      Ids tokens, labels, predicted;
      std::int64_t rows = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Batch batch = loader.batch(1, step, part, parts);
        EXPECT_EQ(batch.global_size, whole.size());
        EXPECT_EQ(batch.first, rows);
        for (const std::int32_t row : ids_of(batch.predicted))
          predicted.push_back(row + static_cast<std::int32_t>(rows * 40));
        rows += batch.lengths.size();
        for (const auto& [from, to] : {std::pair(&batch.tokens, &tokens), std::pair(&batch.labels, &labels)})
          to->insert(to->end(), from->span<std::int32_t>().begin(), from->span<std::int32_t>().end());
      }
      EXPECT_EQ(tokens, ids_of(whole.tokens));
      EXPECT_EQ(labels, ids_of(whole.labels));
      EXPECT_EQ(predicted, ids_of(whole.predicted));
    }
  }
}

TEST(Corpus, BlankLinesSeparateDocuments) {
  using Texts = std::vector<std::string_view>;
  EXPECT_EQ(documents_of("one\ntwo\n\nthree\n"), (Texts{"one\ntwo\n", "three\n"}));
  EXPECT_EQ(documents_of("\n \t\r\n\none\r\n \r\ntwo"), (Texts{"one\r\n", "two"}));
  EXPECT_EQ(documents_of(""), Texts{});
  EXPECT_EQ(documents_of("\n\n"), Texts{});
}

TEST(Corpus, KeepsATenthForTesting) {
  const TempDir dir;
  using Texts = std::vector<std::string_view>;
  std::string documents, lines;
  for (int i = 0; i < 21; ++i) documents += fmt::format("{}\n\n", i), lines += fmt::format("{}\n", i);
  write_text(dir / "documents", documents);
  const Corpus by_document = read_corpus(dir / "documents", false);
  EXPECT_EQ(by_document.test, (Texts{"9\n", "19\n"}));
  EXPECT_EQ(by_document.train.size(), 19u);
  write_text(dir / "lines", lines);
  const Corpus by_line = read_corpus(dir / "lines", false);
  EXPECT_EQ(by_line.test, Texts{"19\n20\n"});
  EXPECT_EQ(by_line.train, Texts{lines.substr(0, lines.find("19"))});
  write_text(dir / "short", "1\n2\n3\n");
  expect_error([&] { read_corpus(dir / "short", false); },
               {dir / "short", "too short to keep a tenth for testing; expected ten documents"});
  write_text(dir / "blank", " \n\n");
  expect_error([&] { read_corpus(dir / "blank", false); }, {dir / "blank", "has no text"});
}

TEST(Corpus, ReadsDirectories) {
  const TempDir dir;
  using Texts = std::vector<std::string_view>;
  std::string ten;
  for (int i = 0; i < 10; ++i) ten += "x\n\n";
  write_text(dir / "b.txt", "b\n");
  write_gzip(dir / "a.txt.gz", {'a', '\n'});
  write_text(dir / "c.txt", ten);
  write_text(dir / "notes.md", "not this");
  const Corpus flat = read_corpus(dir.path(), false);
  EXPECT_EQ(flat.train[0], "a\n");
  EXPECT_EQ(flat.train[1], "b\n");
  EXPECT_EQ(flat.train.size() + flat.test.size(), 12u);

  std::filesystem::create_directories(dir / "train");
  write_text(dir / "train/t.txt", "for training");
  expect_error([&] { read_corpus(dir.path(), false); }, {dir / "test: cannot be read: No such file"});
  std::filesystem::create_directories(dir / "test");
  expect_error([&] { read_corpus(dir.path(), false); }, {dir / "test: expected *.txt or *.txt.gz in it"});
  write_text(dir / "test/t.txt", "for testing");
  const Corpus parts = read_corpus(dir.path(), false);
  EXPECT_EQ(parts.train, Texts{"for training"});
  EXPECT_EQ(parts.test, Texts{"for testing"});
}

TEST(Corpus, LeavesOutBadFilesIfAsked) {
  const TempDir dir;
  std::string ten;
  for (int i = 0; i < 10; ++i) ten += "x\n\n";
  write_text(dir / "a.txt", std::string_view("a\0b", 3));
  write_text(dir / "b.txt", ten);
  write_text(dir / "c.txt", "");
  expect_error([&] { read_corpus(dir.path(), false); }, {dir / "a.txt: is not a text file: byte 1 is NUL"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_corpus(dir.path(), true).train.size(), 9u);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("2 of 3 files were skipped; the first: "), std::string::npos) << said;
  expect_error([&] { read_corpus(dir / "c.txt", true); }, {dir / "c.txt", "has no text"});
}

TEST(TextData, BuildsAVocabularyOfTheTrainingText) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 30; ++i) text += i % 10 == 9 ? "zzz tests\n\n" : "The caf\xc3\xa9 of words\n\n";
  write_text(dir / "t.txt", text);
  const Dataset data =
      load_dataset("text:" + (dir / "t.txt"), {.text = {.vocabulary_size = 50, .length = 8}});
  EXPECT_EQ(data.name, "text");
  EXPECT_EQ(data.train->size(), 27);
  EXPECT_EQ(data.test->size(), 3);
  EXPECT_EQ(data.facts.input.length, 8);
  EXPECT_EQ(data.facts.input.vocabulary, std::ssize(data.facts.vocabulary));
  const std::set<std::string> pieces(data.facts.vocabulary.begin(), data.facts.vocabulary.end());
  EXPECT_TRUE(pieces.contains("cafe") && !pieces.contains("z") && !pieces.contains("##z"));
  EXPECT_EQ(unmasked(data.test->make(Ids{0}, Random(0, "x"), false))[1], 1) << "zzz is unknown";
  const Dataset cased = load_dataset("text:" + dir.path(), {.text = {.cased = true, .length = 8}});
  const auto& kept = cased.facts.vocabulary;
  EXPECT_EQ(std::ranges::count(kept, "The"), 1);
  EXPECT_EQ(std::ranges::count(kept, "caf\xc3\xa9"), 1);

  // As a checkpoint has it.
  write_text(dir / "other", "some other words of which nobody knows\n\nof\n" + std::string(10, '\n') + text);
  const Dataset again = load_dataset("text:" + (dir / "other"), {.facts = cased.facts});
  EXPECT_EQ(again.facts.vocabulary, kept);
  EXPECT_EQ(again.facts.input, cased.facts.input);
  EXPECT_TRUE(again.facts.cased);
}

TEST(TextData, SaysWhatIsWrongWithOptions) {
  const TempDir dir;
  const std::string spec = "text:" + (dir / "t.txt"), vocabulary = dir / "vocab.txt";
  std::string text;
  for (int i = 0; i < 10; ++i) text += "words and more\n\n";
  write_text(dir / "t.txt", text);
  write_text(vocabulary, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwords\nand\n");
  const Dataset data = load_dataset(spec, {.text = {.vocabulary = vocabulary, .length = 9}});
  EXPECT_EQ(data.facts.input, (InputShape{.length = 9, .vocabulary = 7}));
  const auto load = [&](const DatasetOptions& options) { load_dataset(spec, options); };
  DatasetOptions resumed{.facts = data.facts, .text = {.vocabulary = vocabulary}};
  EXPECT_NO_THROW(load(resumed));
  resumed.facts->vocabulary[6] = "or";
  expect_error<UsageError>([&] { load(resumed); }, {vocabulary, "line 7 is 'and', there it is 'or'"});
  resumed.facts->vocabulary.pop_back();
  expect_error<UsageError>([&] { load(resumed); }, {"line 7 is 'and', there it is missing"});
  expect_error<UsageError>([&] { load({.text = {.vocabulary = vocabulary, .vocabulary_size = 9}}); },
                           {"--vocab-size", "9 is for a vocabulary that is built", vocabulary});
  std::filesystem::remove(vocabulary);
  EXPECT_NO_THROW(load(resumed)) << "the file may be gone";

  expect_error<UsageError>([&] { load({.input = ImageSize{1, 8, 8}}); }, {"--input is the size of images"});
  expect_error<UsageError>(
      [&] {
        load({.facts = DataFacts{.input = {.size = {1, 8, 8}, .classes = 2}}});
      },
      {"text has text, the network reads images"});
  expect_error<UsageError>([&] { load_dataset("digits", {.facts = data.facts}); },
                           {"digits has images, the network reads text"});
  expect_error<UsageError>([] { load_dataset("text:"); }, {"text needs a file or a directory: text:PATH"});
  expect_error<UsageError>([] { load_dataset("synthetic-text:0"); }, {"expected synthetic-text:N"});
  write_text(dir / "t.txt", std::string(2000, ' ') + "\x01\n" + std::string(20, '\n') + text);
  EXPECT_NO_THROW(load({}));
  std::string wordless;
  for (int i = 0; i < 20; ++i) wordless += "\x01\n";
  write_text(dir / "t.txt", wordless);
  expect_error([&] { load({}); }, {"text: there is no word in the text for training"});
}

TEST(TextData, IsKnownWithoutReading) {
  EXPECT_FALSE(known_set("text:/no/such/file"));
  const auto known = known_set("text:/no/such/file", {.text = {.vocabulary_size = 900, .length = 64}});
  ASSERT_TRUE(known);
  EXPECT_EQ(known->input, (InputShape{.length = 64, .vocabulary = 900}));
  const Dataset data = load_dataset("synthetic-text:50", {.seed = 4});
  EXPECT_EQ(known_set("synthetic-text:50", {.seed = 4})->input, data.facts.input);
}

TEST(SyntheticText, DependsOnItsArgumentsAlone) {
  const auto texts = synthetic_text(40, 1, 0);
  EXPECT_EQ(synthetic_text(40, 1, 0), texts);
  const auto fewer = synthetic_text(20, 1, 0);
  EXPECT_TRUE(std::ranges::equal(fewer, std::span(texts).first(20)));
  EXPECT_NE(synthetic_text(40, 1, 1), texts);
  const int threads = num_threads();
  const Dataset one = load_dataset("synthetic-text:300", {.seed = 2});
  set_num_threads(3);
  const Dataset two = load_dataset("synthetic-text:300", {.seed = 2});
  set_num_threads(threads);
  EXPECT_EQ(one.facts.vocabulary, two.facts.vocabulary);
  ASSERT_EQ(one.train->size(), two.train->size());
  Ids samples(one.train->size());
  std::iota(samples.begin(), samples.end(), 0);
  EXPECT_EQ(ids_of(one.train->make(samples, Random(0, "x"), true).tokens),
            ids_of(two.train->make(samples, Random(0, "x"), true).tokens));
}

/// Of about a hundred words, which documents for testing use too.
TEST(SyntheticText, HasALanguage) {
  const auto words_of = [](std::uint64_t stream) {
    std::set<std::string> words;
    for (const std::string& text : synthetic_text(2000, 1, stream)) {
      WordReader reader(text, false);
      for (Word word; reader.next(word);) words.emplace(word.text);
    }
    return words;
  };
  const std::set<std::string> words = words_of(0);
  EXPECT_EQ(words_of(1), words);
  EXPECT_GT(words.size(), 80u);
  EXPECT_LT(words.size(), 150u);
}

}  // namespace
}  // namespace ssn::test
