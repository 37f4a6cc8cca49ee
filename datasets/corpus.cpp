#include "datasets/corpus.h"

#include <algorithm>
#include <filesystem>

#include "datasets/text_file.h"
#include "runtime/error.h"
#include "runtime/log.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kTestShare = 10;  // one in

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == line.npos;
}

/// Calls f(begin, end) for each line of the text, its newline included.
template <class F>
void for_each_line(std::string_view text, F&& f) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t newline = text.find('\n', begin),
                      end = newline == text.npos ? text.size() : newline + 1;
    f(begin, end);
    begin = end;
  }
}

std::vector<std::string> text_files(const fs::path& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".txt") || name.ends_with(".txt.gz")) files.push_back(entry.path());
  }
  check(!error, "data", "{}: cannot be read: {}", directory.string(), error.message());
  check(!files.empty(), "data", "{}: expected *.txt or *.txt.gz in it, found none", directory.string());
  std::ranges::sort(files);
  return files;
}

/// Appends the files' documents.
void read_files(const std::vector<std::string>& files, bool skip_bad, Corpus& corpus,
                std::vector<std::string_view>& to) {
  std::size_t skipped = 0;
  std::string first;
  for (const std::string& file : files) {
    try {
      corpus.texts.push_back(read_text_file(file));
    } catch (const Error& error) {
      if (!skip_bad) throw;
      if (skipped++ == 0) first = error.what();
      continue;
    }
    const auto documents = documents_of(corpus.texts.back());
    to.insert(to.end(), documents.begin(), documents.end());
  }
  if (skipped > 0) warn("{} of {} files were skipped; the first: {}", skipped, files.size(), first);
}

/// Moves the last tenth of a document's lines to the test documents.
void split_lines(std::string_view document, Corpus& corpus) {
  std::vector<std::size_t> begins;
  for_each_line(document, [&](std::size_t begin, std::size_t) { begins.push_back(begin); });
  const std::size_t lines = begins.size() / kTestShare;
  if (lines == 0) return corpus.train.push_back(document);
  const std::size_t cut = begins[begins.size() - lines];
  corpus.train.push_back(document.substr(0, cut));
  corpus.test.push_back(document.substr(cut));
}

void split(const std::string& path, Corpus& corpus) {
  const std::vector<std::string_view> all = std::move(corpus.train);
  corpus.train.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all.size() < kTestShare)
      split_lines(all[i], corpus);
    else
      (i % kTestShare == kTestShare - 1 ? corpus.test : corpus.train).push_back(all[i]);
  }
  check(
      !corpus.test.empty(), "data",
      "{}: too short to keep a tenth for testing; expected ten documents (blank lines separate them) or ten "
      "lines, or a directory with train/ and test/",
      path);
}

}  // namespace

std::vector<std::string_view> documents_of(std::string_view text) {
  std::vector<std::string_view> documents;
  std::size_t first = text.npos, last = 0;
  const auto finish = [&] {
    if (first != text.npos) documents.push_back(text.substr(first, last - first));
    first = text.npos;
  };
  for_each_line(text, [&](std::size_t begin, std::size_t end) {
    if (is_blank(text.substr(begin, end - begin - (text[end - 1] == '\n' ? 1 : 0)))) return finish();
    if (first == text.npos) first = begin;
    last = end;
  });
  finish();
  return documents;
}

Corpus read_corpus(const std::string& path, bool skip_bad) {
  Corpus corpus;
  std::error_code error;
  const fs::path train = fs::path(path) / "train", test = fs::path(path) / "test";
  const bool directory = fs::is_directory(path, error);
  if (directory && (fs::is_directory(train, error) || fs::is_directory(test, error))) {
    read_files(text_files(train), skip_bad, corpus, corpus.train);
    read_files(text_files(test), skip_bad, corpus, corpus.test);
  } else {
    read_files(directory ? text_files(path) : std::vector{path}, skip_bad, corpus, corpus.train);
    check(!corpus.train.empty(), "data", "{}: has no text", path);
    split(path, corpus);
  }
  return corpus;
}

}  // namespace ssn
