#pragma once
#include <cstdint>
#include <string>

// The first 512 bytes of a file, which its format leaves to the user (HDF5's user block), say how long it is
// and what its checksum is. So damage is found before a library parses anything.
namespace ssn {

inline constexpr std::int64_t kSealBytes = 512;
/// The format's version, of files that have a seal.
inline constexpr std::int64_t kSealVersion = 2;

/// Writes the seal into a file whose first 512 bytes are free, and is otherwise complete.
void seal_file(const std::string& path);
/// Whether the file begins with a seal. A seal that does not fit the file, or of a later version, is an Error
/// that says so.
bool check_seal(const std::string& path);

}  // namespace ssn
