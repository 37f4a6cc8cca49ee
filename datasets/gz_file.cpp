#include "datasets/gz_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace ssn {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kBufferBytes = 1 << 16;
constexpr std::uint64_t kMostExpansion = 1032;  // of deflate

}  // namespace

GzFile::GzFile(std::string path) : path_(std::move(path)), buffer_(kBufferBytes) {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  check(fs::exists(status), "cannot be read: {}", error ? error.message() : "no such file");
  check(!fs::is_directory(status), "is a directory; expected a file");
  check(fs::is_regular_file(status), "is not a regular file");
  file_.reset(std::fopen(path_.c_str(), "rb"));
  check(file_ != nullptr, "cannot be read: {}", std::strerror(errno));
  most_ = fs::file_size(path_, error);
  check(!error, "cannot be read: {}", error.message());
  fill();
  gzip_ = stream_.avail_in >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b;
  if (gzip_) {
    most_ *= kMostExpansion;
    constexpr int kGzipOnly = 16;
    check(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK, "zlib cannot start: out of memory");
    in_stream_ = true;
  }
}

GzFile::~GzFile() {
  if (gzip_) inflateEnd(&stream_);
}

bool GzFile::fill() {
  const std::size_t count = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  check(std::ferror(file_.get()) == 0, "cannot be read: {}", std::strerror(errno));
  stream_.next_in = buffer_.data();
  stream_.avail_in = static_cast<uInt>(count);
  return count > 0;
}

/// One step of a plain file: input to output.
void GzFile::take() {
  const uInt count = std::min(stream_.avail_in, stream_.avail_out);
  std::memcpy(stream_.next_out, stream_.next_in, count);
  stream_.next_in += count, stream_.avail_in -= count;
  stream_.next_out += count, stream_.avail_out -= count;
}

void GzFile::inflate_some() {
  const bool follows = !in_stream_;
  if (follows) {
    check(stream_.next_in[0] == 0x1f, "has extra bytes after its gzip stream");
    inflateReset(&stream_);
    in_stream_ = true;
  }
  const int code = inflate(&stream_, Z_NO_FLUSH);
  check(code == Z_OK || code == Z_STREAM_END, "is a damaged gzip file ({}); fetch or make it again",
        stream_.msg != nullptr ? stream_.msg : zError(code));
  if (code == Z_STREAM_END) in_stream_ = false;
}

std::size_t GzFile::read(std::span<std::uint8_t> to) {
  constexpr std::size_t kMostAtOnce = 1 << 30;  // zlib counts in 32 bits
  std::size_t done = 0;
  while (done < to.size()) {
    const std::size_t wanted = std::min(to.size() - done, kMostAtOnce);
    stream_.next_out = to.data() + done;
    stream_.avail_out = static_cast<uInt>(wanted);
    while (stream_.avail_out > 0 && (stream_.avail_in > 0 || fill())) gzip_ ? inflate_some() : take();
    const std::size_t count = wanted - stream_.avail_out;
    done += count, position_ += count;
    if (count < wanted) break;
  }
  check(done == to.size() || !in_stream_,
        "ends inside its gzip stream, {} bytes in: truncated; fetch or make it again", position_);
  return done;
}

void GzFile::read_exactly(std::span<std::uint8_t> to, std::string_view what) {
  const std::uint64_t begin = position_;
  const std::size_t count = read(to);
  check(count == to.size(), "truncated: {} needs {} bytes from byte {} on, found {}", what, to.size(), begin,
        count);
}

void GzFile::expect_end(std::string_view what) {
  std::uint8_t extra = 0;
  const std::uint64_t end = position_;
  check(read({&extra, 1}) == 0, "too long: expected its end after {}, at byte {}", what, end);
}

std::string find_data_file(const std::string& directory, const std::string& name) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  check(fs::exists(status), "data", "{}: no such directory ({} should be in it)", directory, name);
  check(fs::is_directory(status), "data", "{}: is a file; expected the directory that holds {}", directory,
        name);
  for (const char* ending : {"", ".gz"}) {
    const fs::path path = fs::path(directory) / (name + ending);
    if (fs::exists(path, error)) return path.string();
    check(!error, "data", "{}: cannot be read: {}", path.string(), error.message());
  }
  fail("data", "{}: expected {} or {}.gz in it, found neither", directory, name, name);
}

}  // namespace ssn
