// How fast text becomes tokens, on one thread:
//   bench_text FILE --vocab-size 8000
// Prints one JSON object: seconds of the processor for each stage, and megabytes of text a second.
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "datasets/text_file.h"
#include "datasets/tokenizer.h"
#include "datasets/vocabulary_builder.h"
#include "runtime/options.h"

namespace ssn {
namespace {

double seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void bench(const std::vector<std::string>& arguments) {
  std::string path;
  std::int64_t size = 8000;
  Options options("bench_text", "Times the tokenizer and the making of a vocabulary.");
  options.positional("FILE", path, "a text file")
      .add("vocab-size", size, "N", "pieces of the vocabulary", at_least(6));
  if (!options.parse(arguments)) return fmt::print("{}", options.help());
  nlohmann::ordered_json out;
  double last = seconds();
  std::size_t bytes = 0;
  const auto lap = [&](const char* stage) {
    const double now = seconds();
    out[stage] = {{"seconds", now - last}, {"mb_per_s", static_cast<double>(bytes) / 1e6 / (now - last)}};
    last = seconds();
  };
  const std::string text = read_text_file(path);
  bytes = text.size();
  lap("read");
  WordCounts counts;
  counts.add(text, false);
  lap("count");
  auto pieces = build_pieces(counts, size);
  lap("build");
  const Tokenizer tokenizer(std::make_shared<Vocabulary>(std::move(pieces), path), false);
  last = seconds();
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  lap("encode");
  const std::size_t tokens = tokenizer.tokenize(text).size();
  lap("with_offsets");
  out["bytes"] = bytes, out["words"] = counts.words().size(), out["tokens"] = tokens;
  out["vocabulary"] = tokenizer.vocabulary().size();
  fmt::print("{}\n", out.dump(1));
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  try {
    ssn::bench({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
