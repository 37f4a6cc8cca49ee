#pragma once
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/error.h"

// Small data files for tests, in a directory that goes with the test.
namespace ssn::test {

using Bytes = std::vector<std::uint8_t>;

class TempDir {
 public:
  TempDir() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("ssn-{}-{}-{}", info->test_suite_name(), info->name(), getpid());
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline void write_plain(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}
inline Bytes read_plain(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}
inline void write_gzip(const std::string& path, const Bytes& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}
/// To `path`, or gzipped to `path`.gz.
inline void write_data(const std::string& path, const Bytes& bytes, bool gzip) {
  gzip ? write_gzip(path + ".gz", bytes) : write_plain(path, bytes);
}

inline void append_word(Bytes& to, std::uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<std::uint8_t>(word >> shift));
}
/// An IDX file with this header and `count` bytes (i · 37 mod 251).
inline Bytes idx_bytes(const std::vector<std::uint32_t>& extents, std::size_t count) {
  Bytes bytes;
  append_word(bytes, 0x800 + static_cast<std::uint32_t>(extents.size()));
  for (std::uint32_t extent : extents) append_word(bytes, extent);
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 37 % 251));
  return bytes;
}
inline Bytes idx_labels(const Bytes& labels) {
  Bytes bytes = idx_bytes({static_cast<std::uint32_t>(labels.size())}, 0);
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

/// f() must throw an E whose message has all these parts.
template <class E = Error, class F>
void expect_error(F&& f, const std::vector<std::string>& parts) {
  try {
    f();
    ADD_FAILURE() << "expected an error with: " << fmt::format("{}", fmt::join(parts, " | "));
  } catch (const E& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is missing in: " << error.what();
  }
}

}  // namespace ssn::test
