#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/tensor.h"

namespace ssn {

/// The value of an HDF5 attribute; strings are UTF-8 without zero bytes.
using Attribute =
    std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

/// How a dataset lies in a file.
enum class Layout {
  checked,     // in chunks with checksums
  compressed,  // these shuffled and deflated, too
  plain,       // in one piece, of which parts can be read fast
};

/// Keeps all threads out of the library, as each call of an Hdf5File does.
std::unique_lock<std::mutex> lock_hdf5();

/// An HDF5 file. Objects are named by paths from the root ("block1/conv1/weight"; "" is the root). Every
/// failure is an Error with the file's name and the innermost message of the library. Thread-safe, one call
/// at a time in the process.
///
/// The library may crash over a damaged file: what has no checksum of its own is for try_in_child() first
/// (runtime/trial.h). What leads out of the file (soft and external links, external and virtual datasets),
/// needs a filter that is not there, or is larger than 1 MiB and 32 times the file is an Error that names the
/// object.
class Hdf5File {
 public:
  Hdf5File() = default;
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) noexcept;
  /// Gives up what was not closed: of a file that was created, nothing can be trusted.
  ~Hdf5File();

  /// For reading.
  static Hdf5File open(const std::string& path);
  /// A new file, in place of any that is there, whose first `user_block` bytes (0, 512, 1024, 2048, ...) the
  /// library leaves alone. Metadata carry checksums. The same calls give the same bytes.
  static Hdf5File create(const std::string& path, std::int64_t user_block = 0);
  /// Writes out what is pending; the only way to know that a created file is complete.
  void close();

  const std::string& path() const { return path_; }
  /// That a file read can sensibly hold: 1 MiB and 32 times its size.
  std::int64_t most_bytes() const { return most_; }
  bool exists(const std::string& object) const;
  bool is_group(const std::string& object) const;
  /// Names of the members of a group, sorted.
  std::vector<std::string> children(const std::string& group) const;
  /// Creates the group and those above it where missing.
  void create_group(const std::string& group);

  /// A CPU tensor of the dataset's shape; types other than the DTypes are refused.
  Tensor read(const std::string& dataset) const;
  /// Of a dataset of u8 with one dimension: its length, and the bytes from `first` on.
  std::int64_t length(const std::string& dataset) const;
  void read_part(const std::string& dataset, std::int64_t first, std::span<std::uint8_t> to) const;
  /// Creates the dataset, and the groups above it where missing; any shape, also scalar or empty; any device.
  void write(const std::string& dataset, const Tensor& tensor, Layout layout = Layout::checked);

  bool has_attribute(const std::string& object, const std::string& name) const;
  /// Integers of any width come as int64, floating-point numbers as double.
  Attribute attribute(const std::string& object, const std::string& name) const;
  /// The same, of the type that the caller needs.
  template <class T>
  T attribute(const std::string& object, const std::string& name) const {
    Attribute value = attribute(object, name);
    check(std::holds_alternative<T>(value), "hdf5", "{}: attribute {} of /{} has another type than expected",
          path_, name, object);
    return std::get<T>(std::move(value));
  }
  /// All of an object's, but those of types that Attribute has not.
  std::map<std::string, Attribute> attributes(const std::string& object) const;
  void set_attribute(const std::string& object, const std::string& name, const Attribute& value);

 private:
  std::string path_;
  std::int64_t file_ = -1;  // the library's identifier
  bool writes_ = false;
  std::int64_t most_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace ssn
