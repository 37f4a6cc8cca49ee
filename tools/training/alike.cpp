#include "tools/training/alike.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "runtime/config.h"
#include "runtime/random.h"

namespace ssn {
namespace {

/// What a run cannot go on with otherwise.
constexpr std::string_view kFixed[] = {
    "model",    "data",    "input",     "length",    "vocab-size", "cased",     "budget",  "count",
    "baseline", "mapping", "groups",    "combine",   "templates",  "embedding", "softmax", "allocation",
    "upsample", "window",  "masks",     "mask-init", "inter",      "gain",      "near",    "search-epochs",
    "init",     "batch",   "optimizer", "ema",       "validation", "shards",    "seed"};
/// What may differ between ranks.
constexpr std::string_view kOfARank[] = {"vocab",   "threads",   "search-threads", "data-threads",
                                         "weights", "recompute", "memory"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// What has to be the same of a value: where the data is may differ.
std::string comparable(std::string_view name, const std::string& value) {
  return name == "data" ? value.substr(0, value.find(':')) : value;
}

/// Empty where there is no such option.
std::string value_of(const OptionValues& values, std::string_view name) {
  const auto it = std::ranges::find(values, name, &OptionValues::value_type::first);
  return it == values.end() ? "" : it->second;
}

std::string shown(const std::string& value) {
  return value.empty() ? "''" : value;
}

std::string checksum(std::string_view bytes) {
  return fmt::format("{:016x}", Random::hash(bytes));
}

/// Builds of one version differ too.
std::string program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return fmt::format("version {} of the program, checksum {}", build::version, checksum(bytes));
}

/// The first, the last and the one in the middle.
std::string samples(const SampleSet& set) {
  const auto size = static_cast<std::int32_t>(set.size());
  if (size == 0) return "none";
  const std::vector<std::int32_t> chosen = {0, size / 2, size - 1};
  const Batch batch = set.make(chosen, Random(0, "alike"), false);
  std::string bytes;
  for (const Tensor* tensor : {&batch.images, &batch.tokens, &batch.labels})
    if (*tensor) bytes.append(static_cast<const char*>(tensor->raw()), tensor->bytes());
  return checksum(bytes);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<std::string> changed_options(const OptionValues& before, const OptionValues& now,
                                         const std::string& checkpoint) {
  std::vector<std::string> changes;
  const bool shards = value_of(before, "shards") != "0";  // the bits may depend on the threads
  for (const auto& [name, value] : now) {
    const std::string was = value_of(before, name);
    const bool fixed = contains(kFixed, name) || (name == "threads" && shards);
    check_usage(!fixed || comparable(name, was) == comparable(name, value), "train",
                "--resume: {} was trained with --{} {}, found {}: leave the flag out, or start a new run",
                checkpoint, name, shown(comparable(name, was)), shown(comparable(name, value)));
    if (was != value) changes.push_back(fmt::format("--{} {} (before {})", name, shown(value), shown(was)));
  }
  return changes;
}

std::vector<std::string> common_options(const Options& options, const std::vector<std::string>& more) {
  std::vector<std::string> all;
  const OptionValues values = options.values();
  const bool shards = value_of(values, "shards") != "0";
  for (const auto& [name, value] : values)
    if (!contains(kOfARank, name) || (name == "threads" && shards))
      all.push_back(fmt::format("--{} {}", name, comparable(name, value)));
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> common_data(const Dataset& dataset) {
  const auto names = [&](const char* what, const std::vector<std::string>& list) {
    return fmt::format("{} with the checksum {}", what, checksum(fmt::format("{}", fmt::join(list, "\n"))));
  };
  return {
      fmt::format("{} training and {} test samples of {}", dataset.train->size(), dataset.test->size(),
                  dataset.facts.input.text()),
      names("a vocabulary", dataset.facts.vocabulary), names("names of classes", dataset.classes),
      fmt::format("samples with the checksums {} and {}", samples(*dataset.train), samples(*dataset.test))};
}

void check_alike(Comm& comm, const std::vector<std::string>& mine) {
  if (comm.size() == 1) return;
  static const std::string kProgram = program();
  std::vector<std::string> lines = mine;
  lines.push_back(kProgram);
  std::string text = fmt::format("{}", fmt::join(lines, "\n"));
  comm.broadcast(text);
  const std::vector<std::string> first = lines_of(text);
  const auto differs = std::ranges::mismatch(first, lines).in1 - first.begin();
  const std::vector<std::ptrdiff_t> all = comm.allgather(differs);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    check_usage(all[rank] == std::ssize(first), "train",
                "the ranks differ in data or options: give all the same. The first has {}, rank {} has not",
                first[static_cast<std::size_t>(all[rank])], rank);
}

}  // namespace ssn
