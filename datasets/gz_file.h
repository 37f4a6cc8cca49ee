#pragma once
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/error.h"

namespace ssn {

/// Reads a file from its beginning to its end, decompressing it if it is gzipped, whatever its name. A gzip
/// stream must be whole, have the right checksum, and be followed by nothing but further gzip streams.
class GzFile {
 public:
  explicit GzFile(std::string path);
  ~GzFile();
  GzFile(const GzFile&) = delete;

  /// No more bytes than this can be read: the file's size, or the most that a gzip file of that size can
  /// hold.
  std::uint64_t most_bytes() const { return most_; }
  /// Fills `to`, or as much of it as there is; returns the bytes read.
  std::size_t read(std::span<std::uint8_t> to);
  /// Fills `to`; fewer bytes are an error. `what` names them: "the header".
  void read_exactly(std::span<std::uint8_t> to, std::string_view what);
  /// Checks that nothing is left. `what` names what has been read.
  void expect_end(std::string_view what);
  /// Throws an Error that begins with the file's name unless ok.
  template <class... A>
  void check(bool ok, fmt::format_string<A...> format, A&&... args) const {
    if (!ok) [[unlikely]]
      fail("data", "{}: {}", path_, fmt::format(format, std::forward<A>(args)...));
  }

 private:
  bool fill();
  void take();
  void inflate_some();

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<std::uint8_t> buffer_;
  z_stream stream_{};                      // the input is in buffer_; used for plain files too
  std::uint64_t most_ = 0, position_ = 0;  // position: in the decompressed bytes
  bool gzip_ = false;
  bool in_stream_ = false;  // inside a gzip stream, whose end is still to come
};

/// The path of `name` or `name`.gz in the directory; one of them must exist.
std::string find_data_file(const std::string& directory, const std::string& name);

}  // namespace ssn
