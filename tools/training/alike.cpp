#include "tools/training/alike.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "runtime/config.h"
#include "runtime/random.h"

namespace ssn {
namespace {

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

std::vector<std::pair<std::string, std::string>> identity(const TrainConfig& c) {
  return {{"model", c.model},
          {"data", c.data.substr(0, c.data.find(':'))},
          {"input", c.input},
          {"length", fmt::format("{}", c.length)},
          {"cased", fmt::format("{}", c.cased)},
          {"vocab-size", fmt::format("{}", c.vocab_size)},
          {"budget", c.budget},
          {"count", c.count},
          {"baseline", c.baseline},
          {"mapping", c.mapping},
          {"groups", fmt::format("{}", c.groups)},
          {"combine", c.combine},
          {"templates", fmt::format("{}", c.templates)},
          {"embedding", fmt::format("{}", c.embedding)},
          {"allocation", c.allocation},
          {"upsample", c.upsample},
          {"window", fmt::format("{}", c.window)},
          {"masks", c.masks},
          {"mask-init", c.mask_init},
          {"inter", c.inter},
          {"gain", c.gain},
          {"batch", fmt::format("{}", c.batch)},
          {"optimizer", c.optimizer},
          {"ema", fmt::format("{}", c.ema)},
          {"validation", fmt::format("{}", c.validation)},
          {"shards", fmt::format("{}", c.shards)},
          {"threads", c.shards > 0 ? fmt::format("{}", c.threads) : "any"},
          {"seed", fmt::format("{}", c.seed)}};
}

std::vector<std::string> common_options(const TrainConfig& c, const std::vector<std::string>& more) {
  std::vector<std::string> all = {
      fmt::format("--epochs {} --micro-batches {} --eval-every {} --patience {} --on-nonfinite {}", c.epochs,
                  c.micro_batches, c.eval_every, c.patience, c.on_nonfinite),
      fmt::format("--overlap {} --bucket {} --wire {}", c.overlap, c.bucket, c.wire),
      fmt::format("--near {}", c.near)};
  for (const auto& [name, value] : identity(c)) all.push_back(fmt::format("--{} {}", name, value));
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
