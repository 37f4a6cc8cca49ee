#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/random.h"

namespace ssn::fuzz {

/// Makes damaged files of whole ones: flipped bits, cut and repeated pieces, pieces of another file, absurd
/// numbers, in binary and in words. A function of (seed, target, number of the file) alone.
class Mutator {
 public:
  Mutator(std::vector<std::string> files, std::uint64_t seed, const std::string& target)
      : files_(std::move(files)), random_(seed, "fuzz/" + target) {}
  std::string file(std::int64_t number);

 private:
  std::size_t below(std::size_t n);
  const std::string& any_file() { return files_[below(files_.size())]; }
  void change(std::string& bytes);
  void overwrite_integer(std::string& bytes);
  void overwrite_words(std::string& bytes);

  std::vector<std::string> files_;
  Random random_;
  std::uint64_t at_ = 0;
};

}  // namespace ssn::fuzz
