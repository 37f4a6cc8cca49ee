#include "runtime/checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "runtime/config.h"
#include "runtime/file_descriptor.h"
#include "runtime/liveness.h"
#include "runtime/seal.h"
#include "runtime/trial.h"

// docs/checkpoint-format.md describes the format.
namespace ssn {
namespace {

constexpr const char* kFormat = "shapeshifter-checkpoint";
constexpr std::int64_t kUnsealedVersion = 1;  // files of this version have no seal

void make_durable(const std::string& path) {
  const FileDescriptor fd(check_system(::open(path.c_str(), O_RDONLY | O_CLOEXEC), path, "open it"));
  check_system(::fsync(fd), path, "write it to disk");
}

/// "a/b/c" is attribute "c" of the object "a/b".
std::pair<std::string, std::string> split(const std::string& name) {
  const std::size_t at = name.rfind('/');
  if (at == std::string::npos) return {"", name};
  return {name.substr(0, at), name.substr(at + 1)};
}

/// Reads a file's tree. What is larger than all that it may hold, or so deep that a group must contain
/// itself, is refused.
class TreeReader {
 public:
  TreeReader(const Hdf5File& file, Archive& archive)
      : file_(file), archive_(archive), left_(file.most_bytes()) {}

  void read(const std::string& object) {
    constexpr std::ptrdiff_t kDeepest = 32;
    check(std::ranges::count(object, '/') <= kDeepest, "hdf5",
          "{}: cannot read /{}: groups are in each other {} deep", file_.path(), object, kDeepest);
    const std::string prefix = object.empty() ? "" : object + "/";
    for (auto& [name, value] : file_.attributes(object))
      archive_.attributes.emplace(prefix + name, std::move(value));
    if (file_.is_group(object)) {
      for (const std::string& child : file_.children(object)) read(prefix + child);
      return;
    }
    const Tensor tensor = file_.read(object);
    left_ -= static_cast<std::int64_t>(tensor.bytes());
    check(left_ >= 0, "hdf5", "{}: cannot read /{}: all together is much larger than the file", file_.path(),
          object);
    archive_.tensors.emplace(object, tensor);
  }

 private:
  const Hdf5File& file_;
  Archive& archive_;
  std::int64_t left_;  // bytes that may still be read
};

void read_file(const std::string& path, Archive& archive) {
  Hdf5File file = Hdf5File::open(path);
  TreeReader(file, archive).read("");
  file.close();
}

}  // namespace

const Tensor& Archive::tensor(const std::string& name) const {
  const auto it = tensors.find(name);
  check(it != tensors.end(), "checkpoint", "{}: it has no tensor {}", path, name);
  return it->second;
}

void replace_file(const std::string& name, const std::function<void(const std::string&)>& fill) {
  namespace fs = std::filesystem;
  std::error_code ignored, lost;
  const std::string path = fs::is_symlink(name, ignored) ? fs::canonical(name, lost).string() : name;
  check(!lost, "write", "{}: cannot write it: it is a link that leads nowhere", name);
  const std::string temporary = path + ".partial";
  const fs::file_status status = fs::status(path, ignored);  // a device must not be replaced by a file
  check(!fs::exists(status) || fs::is_regular_file(status), "write", "{}: cannot write it: it is {}", path,
        fs::is_directory(status) ? "a directory" : "not a file");
  try {
    fill(temporary);
    make_durable(temporary);
    check_system(std::rename(temporary.c_str(), path.c_str()), path, "put the new file in its place");
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
  const fs::path directory = fs::path(path).parent_path();
  make_durable(directory.empty() ? "." : directory.string());
}

void save_checkpoint(const std::string& path, const Archive& archive, Layout layout) {
  replace_file(path, [&](const std::string& temporary) {
    Hdf5File file = Hdf5File::create(temporary, kSealBytes);
    file.set_attribute("", "format", kFormat);
    file.set_attribute("", "format_version", kSealVersion);
    file.set_attribute("", "program_version", build::version);
    for (const auto& [name, tensor] : archive.tensors) file.write(name, tensor, layout);
    for (const auto& [name, value] : archive.attributes) {
      const auto [object, attribute] = split(name);
      file.create_group(object);
      file.set_attribute(object, attribute, value);
    }
    file.close();
    seal_file(temporary);
  });
}

Archive load_hdf5(const std::string& path) {
  const Busy busy("reads a file");
  Archive archive;
  archive.path = path;
  archive.format_version = check_seal(path) ? kSealVersion : 0;
  if (archive.format_version == 0) try_in_child(path, [&] { read_file(path, archive); });
  read_file(path, archive);
  return archive;
}

Archive load_checkpoint(const std::string& path) {
  return as_checkpoint(load_hdf5(path));
}

Archive as_checkpoint(Archive archive) {
  const std::string& path = archive.path;
  const bool sealed = archive.format_version == kSealVersion;
  const auto format = archive.attributes.find("format");
  check(format != archive.attributes.end() && format->second == Attribute(kFormat), "checkpoint",
        "{}: it is an HDF5 file, but not a checkpoint of this program", path);
  archive.format_version = archive.attribute<std::int64_t>("format_version");
  check(archive.format_version <= kSealVersion, "checkpoint",
        "{}: its format version is {}, this program reads up to {}: use a newer program", path,
        archive.format_version, kSealVersion);
  check(archive.format_version == (sealed ? kSealVersion : kUnsealedVersion), "checkpoint",
        "{}: it is damaged: it is of format version {}, but its beginning is not", path,
        archive.format_version);
  archive.program_version = archive.attribute<std::string>("program_version");
  for (const char* name : {"format", "format_version", "program_version"}) archive.attributes.erase(name);
  return archive;
}

void atomic_write_text(const std::string& path, std::string_view text) {
  replace_file(path, [&](const std::string& temporary) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    const FileDescriptor fd(check_system(::open(temporary.c_str(), flags, 0666), temporary, "create it"));
    write_all(fd, path, text);
  });
}

}  // namespace ssn
