#include "datasets/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace ssn {
namespace {

namespace fs = std::filesystem;

bool is_image(const std::string& name) {
  std::string ending = fs::path(name).extension();
  for (char& c : ending) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

/// The names in a directory for which keep(name, is it a directory) holds, sorted. Links are followed; one
/// that leads nowhere is no directory.
template <class Keep>
std::vector<std::string> list(const fs::path& directory, Keep&& keep) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename();
      std::error_code nowhere;
      if (name[0] != '.' && keep(name, entry.is_directory(nowhere))) names.push_back(name);
    }
  } catch (const fs::filesystem_error& error) {
    fail("data", "{}: cannot be read: {}", directory.string(), error.code().message());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> list_classes(const fs::path& directory) {
  return list(directory, [](const std::string&, bool is_directory) { return is_directory; });
}

/// 1.3 million names take some 30 MB: one after another in one text, 4 bytes each besides.
class FolderImages : public EncodedImages {
 public:
  FolderImages(fs::path directory, std::vector<std::string> classes)
      : directory_(std::move(directory)), classes_(std::move(classes)) {}

  /// Classes come in rising order.
  void add_class(std::int32_t label) {
    first_of_class_.resize(label + 1, size());
    const auto images = [](const std::string& name, bool is_directory) {
      return !is_directory && is_image(name);
    };
    for (const std::string& name : list(directory_ / classes_[label], images)) {
      begins_.push_back(static_cast<std::uint32_t>(names_.size()));
      names_ += name;
      names_ += '\0';
      check(names_.size() <= UINT32_MAX, "data", "{}: has names of more than 4 GiB", directory_.string());
    }
  }

  std::int64_t size() const override { return std::ssize(begins_); }
  std::int32_t label(std::int64_t image) const override {
    return static_cast<std::int32_t>(std::ranges::upper_bound(first_of_class_, image) -
                                     first_of_class_.begin() - 1);
  }
  std::string name(std::int64_t image) const override { return names_.c_str() + begins_[image]; }
  std::string place(std::int64_t image) const override {
    return directory_ / classes_[label(image)] / name(image);
  }
  void read(std::int64_t image, std::vector<std::uint8_t>& to) const override {
    const std::string path = place(image);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // waits for nobody at a pipe
    check(fd >= 0, "data", "{}: cannot be read: {}", path, std::strerror(errno));
    const std::string error = read_all(fd, to);
    ::close(fd);
    check(error.empty(), "data", "{}: cannot be read: {}", path, error);
  }

 private:
  /// Returns what went wrong.
  static std::string read_all(int fd, std::vector<std::uint8_t>& to) {
    constexpr std::int64_t kMostBytes = 1 << 30;
    struct stat status {};
    if (::fstat(fd, &status) != 0) return std::strerror(errno);
    if (!S_ISREG(status.st_mode)) return "it is not a file";
    if (status.st_size > kMostBytes) return "it is larger than 1 GiB";
    to.resize(static_cast<std::size_t>(status.st_size));
    for (std::size_t done = 0; done < to.size();) {
      const ssize_t n = ::read(fd, to.data() + done, to.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return std::strerror(errno);
      if (n == 0) to.resize(done);  // someone cuts it off meanwhile: its decoder will find out
      done += static_cast<std::size_t>(n);
    }
    return "";
  }

  fs::path directory_;
  std::vector<std::string> classes_;
  std::vector<std::int64_t> first_of_class_;
  std::string names_;
  std::vector<std::uint32_t> begins_;
};

void check_directory(const fs::path& path, const char* holds) {
  std::error_code error;
  check(fs::is_directory(path, error), "data", "{}: there is no such directory; expected {} in it",
        path.string(), holds);
}

std::shared_ptr<const EncodedImages> open_part(const fs::path& directory,
                                               const std::vector<std::string>& classes, bool training) {
  auto images = std::make_shared<FolderImages>(directory, classes);
  const std::vector<std::string> found = list_classes(directory);
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const std::int64_t before = images->size();
    if (training || std::ranges::binary_search(found, classes[label]))
      images->add_class(static_cast<std::int32_t>(label));
    check(!training || images->size() > before, "data",
          "{}: has no images; expected files that end in .jpg, .jpeg or .png",
          (directory / classes[label]).string());
  }
  for (const std::string& name : found)
    check(std::ranges::binary_search(classes, name), "data",
          "{}: no training images are of this class: expected the directories of train",
          (directory / name).string());
  check(images->size() > 0, "data", "{}: has no images; expected a directory for each class",
        directory.string());
  return images;
}

}  // namespace

EncodedSets open_image_folder(const std::string& directory) {
  const fs::path path = directory;
  std::error_code error;
  check_directory(path, "train/CLASS/*.jpg and val/CLASS/*.jpg");
  check_directory(path / "train", "a directory for each class");
  const fs::path test = fs::is_directory(path / "val", error) ? path / "val" : path / "test";
  check(fs::is_directory(test, error), "data", "{}: expected val or test in it, found neither", directory);
  EncodedSets sets{.train = {}, .test = {}, .classes = list_classes(path / "train")};
  check(!sets.classes.empty(), "data", "{}: expected a directory for each class, found none",
        (path / "train").string());
  sets.train = open_part(path / "train", sets.classes, true);
  sets.test = open_part(test, sets.classes, false);
  return sets;
}

}  // namespace ssn
