#include "runtime/npz.h"

#include <zip.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/half.h"
#include "runtime/liveness.h"

namespace ssn {
namespace {

constexpr std::uint64_t kFreeBytes = 1 << 20, kMostRatio = 32;
constexpr std::size_t kLongestHeader = 1 << 16;

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Zip = std::unique_ptr<zip_t, Discard>;
using ZipFile = std::unique_ptr<zip_file_t, Discard>;

/// What .npy calls a type; only little-endian ones.
struct FileType {
  std::string_view name;
  DType dtype;  // in memory
  std::size_t size;
};
constexpr FileType kTypes[] = {{"<f4", DType::f32, 4}, {"<f8", DType::f64, 8}, {"<i4", DType::i32, 4},
                               {"<i8", DType::i64, 8}, {"|u1", DType::u8, 1},  {"|b1", DType::u8, 1},
                               {"<f2", DType::f32, 2}};

Zip open_zip(const std::string& path) {
  int code = 0;
  Zip archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  fail("npz", "{}: cannot read it: {}", path, text);
}

/// One array of an archive, read from front to back.
class Array {
 public:
  Array(zip_t* archive, const std::string& path, const zip_stat_t& entry)
      : path_(path), name_(entry.name), left_(entry.size), file_(zip_fopen_index(archive, entry.index, 0)) {
    require(file_ != nullptr, "{}", zip_strerror(archive));
  }
  template <class... A>
  void require(bool condition, fmt::format_string<A...> format, A&&... args) const {
    if (!condition) fail("npz", "{}: {}: {}", path_, name_, fmt::format(format, std::forward<A>(args)...));
  }
  std::uint64_t left() const { return left_; }
  void read(void* to, std::uint64_t bytes) {
    require(bytes <= left_, "it is cut off");
    left_ -= bytes;
    for (char* at = static_cast<char*>(to); bytes > 0;) {
      const zip_int64_t n = zip_fread(file_.get(), at, bytes);
      require(n > 0, "it is damaged: {}", n < 0 ? zip_file_strerror(file_.get()) : "it ends too early");
      at += n;
      bytes -= static_cast<std::uint64_t>(n);
    }
  }
  /// Behind the last byte the library compares the checksum.
  void end() {
    char none = 0;
    const zip_int64_t n = zip_fread(file_.get(), &none, 1);
    require(n == 0, "it is damaged: {}",
            n < 0 ? zip_file_strerror(file_.get()) : "it unpacks to more than the archive says");
  }

 private:
  const std::string& path_;
  std::string name_;
  std::uint64_t left_;
  ZipFile file_;
};

struct Header {
  FileType type;
  bool columns_first;
  std::vector<std::int64_t> shape;
};

/// What stands behind 'key': in the Python dictionary of a header.
std::string_view value_of(const Array& array, std::string_view text, std::string_view key) {
  const std::size_t at = text.find(fmt::format("'{}':", key));
  array.require(at != std::string_view::npos, "its header has no '{}'", key);
  text.remove_prefix(at + key.size() + 3);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

std::vector<std::int64_t> parse_shape(const Array& array, std::string_view text) {
  std::vector<std::int64_t> shape;
  const std::size_t close = text.find(')');
  array.require(text.starts_with('(') && close != std::string_view::npos, "its header has no shape");
  const char *at = text.data() + 1, *end = text.data() + close;
  while (at < end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int64_t extent = 0;
    const auto [next, error] = std::from_chars(at, end, extent);
    array.require(error == std::errc() && extent >= 0, "its shape {} is not possible",
                  text.substr(0, close + 1));
    shape.push_back(extent);
    at = next;
    array.require(shape.size() <= Shape::kMaxRank, "it has more than {} dimensions", Shape::kMaxRank);
  }
  return shape;
}

Header parse_header(const Array& array, std::string_view text) {
  std::string_view descr = value_of(array, text, "descr");
  array.require(descr.starts_with('\''), "it holds records, expected numbers");
  descr = descr.substr(1, descr.find('\'', 1) - 1);
  const auto* type = std::ranges::find(kTypes, descr, &FileType::name);
  array.require(type != std::end(kTypes),
                "its type '{}' cannot be read: convert it to float32, little-endian", descr);
  return {*type, value_of(array, text, "fortran_order").starts_with("True"),
          parse_shape(array, value_of(array, text, "shape"))};
}

Header read_header(Array& array) {
  unsigned char start[8];
  array.read(start, sizeof(start));
  array.require(std::memcmp(start, "\x93NUMPY", 6) == 0 && start[6] >= 1 && start[6] <= 3,
                "it is no NumPy array of format 1 to 3");
  unsigned char bytes[4] = {};
  array.read(bytes, start[6] == 1 ? 2 : 4);
  const std::size_t length = bytes[0] | static_cast<std::size_t>(bytes[1]) << 8 |
                             static_cast<std::size_t>(bytes[2]) << 16 |
                             static_cast<std::size_t>(bytes[3]) << 24;
  array.require(length <= kLongestHeader, "its header would have {} bytes", length);
  std::string text(length, '\0');
  array.read(text.data(), length);
  return parse_header(array, text);
}

/// From column-major to row-major.
Tensor transposed(const Tensor& from, const Shape& shape) {
  Tensor to = Tensor::empty(shape, from.dtype());
  const std::size_t size = size_of(from.dtype());
  const auto* source = static_cast<const char*>(from.raw());
  auto* target = static_cast<char*>(to.raw());
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()), 0), step(index.size(), 1);
  for (int d = 1; d < shape.rank(); ++d) step[d] = step[d - 1] * shape[d - 1];
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    std::memcpy(target + i * static_cast<std::int64_t>(size), source + at * static_cast<std::int64_t>(size),
                size);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      at += step[d];
      if (++index[d] < shape[d]) break;
      at -= step[d] * shape[d];
      index[d] = 0;
    }
  }
  return to;
}

Tensor read_array(Array& array) {
  const Header header = read_header(array);
  std::uint64_t bytes = header.type.size;
  bool fits = true;
  for (const std::int64_t n : header.shape)
    fits = fits && n <= std::int64_t{1} << 48 &&
           !__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes);
  array.require(fits && bytes == array.left(), "its shape {} does not go with its {} bytes of data",
                fmt::join(header.shape, "x"), array.left());
  const Shape shape{std::span<const std::int64_t>(header.shape)};
  Tensor tensor = Tensor::empty(shape, header.type.dtype);
  if (header.type.name == "<f2") {
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(shape.size()));
    array.read(halves.data(), bytes);
    std::ranges::transform(halves, tensor.data<float>(), from_half);
  } else {
    array.read(tensor.raw(), bytes);
  }
  array.end();
  return header.columns_first && shape.rank() > 1 ? transposed(tensor, shape) : tensor;
}

}  // namespace

Archive read_npz(const std::string& path) {
  const Busy busy("reads an npz file");
  const Zip zip = open_zip(path);
  const std::uint64_t most = kFreeBytes + kMostRatio * std::filesystem::file_size(path);
  const zip_int64_t count = zip_get_num_entries(zip.get(), 0);
  std::uint64_t total = 0;
  Archive archive;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t entry;
    const bool known = zip_stat_index(zip.get(), static_cast<zip_uint64_t>(i), 0, &entry) == 0 &&
                       (entry.valid & ZIP_STAT_NAME) && (entry.valid & ZIP_STAT_SIZE);
    check(known, "npz", "{}: its entry {} is damaged: {}", path, i, zip_strerror(zip.get()));
    constexpr std::string_view kEnding = ".npy";
    std::string name = entry.name;
    check(name.ends_with(kEnding), "npz", "{}: {} is no NumPy array", path, name);
    name.resize(name.size() - kEnding.size());
    check(entry.size <= most - total, "npz", "{}: {}: it would unpack to {} times its size", path, name,
          kMostRatio);
    total += entry.size;
    Array array(zip.get(), path, entry);
    check(archive.tensors.emplace(name, read_array(array)).second, "npz", "{}: there are two arrays {}", path,
          name);
  }
  return archive;
}

}  // namespace ssn
