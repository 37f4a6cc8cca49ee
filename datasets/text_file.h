#pragma once
#include <string>

namespace ssn {

/// The whole of a file, gzipped or not, which must be UTF-8 text: an empty file, one with NUL bytes, or one
/// of which more than a thousandth of the bytes belong to no character is an Error that names the file and
/// the first such byte's offset.
std::string read_text_file(const std::string& path);

}  // namespace ssn
