#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace ssn::fuzz {

/// A reader of files. `read` reads the file, whatever is in it, and refuses it by an Error; anything else
/// that happens is a fault. It may allocate 16 MiB and `factor` times the file's size.
struct Target {
  std::string name;
  void (*read)(const std::string& file);
  std::size_t factor;
};
std::span<const Target> targets();

/// Reads the file; whether it was accepted. Ends the program over more memory than the target may have, or
/// more than 5 s of computing.
bool try_file(const Target& target, const std::string& file);

}  // namespace ssn::fuzz
