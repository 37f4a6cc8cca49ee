#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace ssn {

/// Documents for training and for testing, and the texts they are stretches of.
struct Corpus {
  std::deque<std::string> texts = {};
  std::vector<std::string_view> train = {}, test = {};
};

/// The documents of a text, which blank lines separate.
std::vector<std::string_view> documents_of(std::string_view text);

/// Reads a text file, or a directory: all *.txt and *.txt.gz in DIR/train and in DIR/test if these exist,
/// otherwise in DIR itself, sorted by name. Where nothing says what is for testing, it is every tenth
/// document, or, of less than ten documents, the last tenth of each one's lines. A file that is no text
/// (read_text_file) is an Error; with `skip_bad` it is left out, and a warning says how many were.
Corpus read_corpus(const std::string& path, bool skip_bad);

}  // namespace ssn
