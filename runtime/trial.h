#pragma once
#include <functional>
#include <string>

namespace ssn {

/// Runs `read`, which reads the file `path`, in a child process, because a library that it uses may crash,
/// hang or ask for all memory over a damaged file. An exception there is an Error here, with the same
/// message; if the child dies, an Error names `path` and says of what. Returns if all went well: the caller
/// then does the same in its own process.
///
/// The child has `seconds` of computing and 1 s more for every 16 MiB of the file, and 256 MiB of memory and
/// 64 times the file's size (no limit of memory under a sanitizer). It must not communicate, nor use other
/// threads.
void try_in_child(const std::string& path, const std::function<void()>& read, int seconds = 5);

}  // namespace ssn
