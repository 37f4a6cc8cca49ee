#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "runtime/hdf5_file.h"
#include "runtime/tensor.h"

namespace ssn {

/// What a checkpoint holds: tensors and attributes under names that form a tree ("optimizer/momentum",
/// "trainer/step"). A name may be used once, and is not the beginning of a tensor's path (an attribute may
/// sit on a tensor: "theta/unit").
struct Archive {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, Attribute> attributes;
  /// The file, the version of its format and of the program that wrote it; set by load_checkpoint.
  std::string path;
  std::int64_t format_version = 0;
  std::string program_version;

  /// Errors name the file, and the entry that is missing or of another type.
  const Tensor& tensor(const std::string& name) const;
  template <class T>
  const T& attribute(const std::string& name) const {
    const auto it = attributes.find(name);
    check(it != attributes.end(), "checkpoint", "{}: it has no attribute {}", path, name);
    check(std::holds_alternative<T>(it->second), "checkpoint",
          "{}: its attribute {} has another type than expected", path, name);
    return std::get<T>(it->second);
  }
};

/// Writes a file of the newest format (docs/checkpoint-format.md) under a temporary name beside `path`, makes
/// it durable and renames it. If anything fails (no permission, disk full) the temporary file is removed, a
/// file that was at `path` stands untouched, and an Error says why. The same content gives the same bytes.
void save_checkpoint(const std::string& path, const Archive& archive, Layout layout = Layout::checked);
/// Reads all of it, of this version of the format or an earlier one, onto the CPU. A file that is missing,
/// truncated, damaged, foreign or of a later version is an Error. Damage is found before the HDF5 library
/// parses anything.
Archive load_checkpoint(const std::string& path);
/// The same of any HDF5 file, with all its attributes but those of types that Attribute has not. One without
/// a checksum of ours is read in a child process first (runtime/trial.h).
Archive load_hdf5(const std::string& path);
/// What load_checkpoint makes of what load_hdf5 has read.
Archive as_checkpoint(Archive archive);

/// Runs fill(name of a temporary file in the same directory), makes that file durable and puts it in place of
/// `path`; removes it if anything fails. Links stay: what they lead to is replaced.
void replace_file(const std::string& path, const std::function<void(const std::string& temporary)>& fill);
/// Replaces a small file as save_checkpoint does: readers see the old text or the new one, never a part.
void atomic_write_text(const std::string& path, std::string_view text);

}  // namespace ssn
