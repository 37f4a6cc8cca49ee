#include "runtime/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "runtime/config.h"
#include "runtime/error.h"
#include "runtime/liveness.h"

// Format version 1: an HDF5 file. Its root has the attributes format = "shapeshifter-checkpoint",
// format_version = 1 and program_version. A tensor is the dataset of its name; an attribute "a/b/c" is
// attribute c of the object /a/b. Numbers are little-endian; metadata and all datasets beyond 256 bytes carry
// checksums.
namespace ssn {
namespace {

constexpr const char* kFormat = "shapeshifter-checkpoint";
constexpr std::int64_t kFormatVersion = 1;

/// Calls the system, and turns -1 into an Error with the system's words.
int check_system(int result, const std::string& path, const char* action) {
  check(result >= 0, "write", "{}: cannot {}: {}", path, action, std::strerror(errno));
  return result;
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  operator int() const { return fd_; }

 private:
  int fd_;
};

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

void read_tree(const Hdf5File& file, const std::string& object, Archive& archive) {
  const std::string prefix = object.empty() ? "" : object + "/";
  for (auto& [name, value] : file.attributes(object))
    archive.attributes.emplace(prefix + name, std::move(value));
  if (!file.is_group(object)) {
    archive.tensors.emplace(object, file.read(object));
    return;
  }
  for (const std::string& child : file.children(object)) read_tree(file, prefix + child, archive);
}

}  // namespace

const Tensor& Archive::tensor(const std::string& name) const {
  const auto it = tensors.find(name);
  check(it != tensors.end(), "checkpoint", "it has no tensor {}", name);
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

void save_checkpoint(const std::string& path, const Archive& archive) {
  replace_file(path, [&](const std::string& temporary) {
    Hdf5File file = Hdf5File::create(temporary);
    file.set_attribute("", "format", kFormat);
    file.set_attribute("", "format_version", kFormatVersion);
    file.set_attribute("", "program_version", build::version);
    for (const auto& [name, tensor] : archive.tensors) file.write(name, tensor);
    for (const auto& [name, value] : archive.attributes) {
      const auto [object, attribute] = split(name);
      file.create_group(object);
      file.set_attribute(object, attribute, value);
    }
    file.close();
  });
}

Archive load_checkpoint(const std::string& path) {
  const Busy busy("reads a checkpoint");
  Hdf5File file = Hdf5File::open(path);
  const bool ours = file.has_attribute("", "format") && file.attribute("", "format") == Attribute(kFormat);
  check(ours, "checkpoint", "{}: it is an HDF5 file, but not a checkpoint of this program", path);
  const auto version = file.attribute<std::int64_t>("", "format_version");
  check(version == kFormatVersion, "checkpoint",
        "{}: its format version is {}, this program reads {}: use the program that wrote it", path, version,
        kFormatVersion);
  Archive archive;
  read_tree(file, "", archive);
  archive.program_version = file.attribute<std::string>("", "program_version");
  for (const char* name : {"format", "format_version", "program_version"}) archive.attributes.erase(name);
  file.close();
  return archive;
}

void atomic_write_text(const std::string& path, std::string_view text) {
  replace_file(path, [&](const std::string& temporary) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    const FileDescriptor fd(check_system(::open(temporary.c_str(), flags, 0666), temporary, "create it"));
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t n = ::write(fd, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      check_system(static_cast<int>(std::min<ssize_t>(n, 0)), path, "write it");
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
  });
}

}  // namespace ssn
