#include "datasets/image_pack.h"

#include <fmt/ranges.h>
#include <libdeflate.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>

#include "runtime/checkpoint.h"
#include "runtime/trial.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
constexpr const char* kFormat = "shapeshifter-images";
constexpr std::int64_t kFormatVersion = 1;

std::uint32_t checksum(const Bytes& bytes) {
  return libdeflate_crc32(0, bytes.data(), bytes.size());
}

template <class T>
Tensor list_of(std::vector<T>& values) {  // without a copy
  return Tensor::over(Storage::adopt(Device::cpu, values.data(), values.size() * sizeof(T)),
                      {std::ssize(values)}, dtype_of<T>);
}

/// One file, opened.
struct Shard {
  Hdf5File file;
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> labels;
  std::vector<std::uint32_t> checksums;
};

/// Shard `number` of `count` of a part. `classes`: a line each, as every shard has them; set by the first.
Shard open_shard(const fs::path& path, const std::string& part, std::int64_t number, std::int64_t count,
                 std::string& classes) {
  Shard shard{.file = Hdf5File::open(path), .offsets = {}, .labels = {}, .checksums = {}};
  const Hdf5File& file = shard.file;
  const auto expect = [&](bool ok, const char* what) { check(ok, "data", "{}: {}", path.string(), what); };
  expect(file.has_attribute("", "format") && file.attribute("", "format") == Attribute(kFormat),
         "is an HDF5 file, but not one that ssn pack wrote");
  expect(file.attribute<std::int64_t>("", "format_version") == kFormatVersion,
         "is of a later version: use the program that wrote it");
  expect(file.attribute<std::string>("", "part") == part &&
             file.attribute<std::int64_t>("", "shard") == number &&
             file.attribute<std::int64_t>("", "shards") == count,
         "was written under another name: give it back, or pack the images again");
  if (classes.empty()) classes = file.attribute<std::string>("", "classes");
  expect(file.attribute<std::string>("", "classes") == classes,
         "has other classes than the first file of train: it belongs to another set");
  const Tensor offsets = file.read("offsets"), labels = file.read("labels"), sums = file.read("checksums");
  const std::int64_t n = labels.size();
  expect(offsets.size() == n + 1 && sums.size() == n, "its lists have different lengths: damaged");
  const auto values = offsets.span<std::int64_t>();
  expect(std::ranges::is_sorted(values) && values.front() == 0 && values.back() == file.length("bytes"),
         "its offsets are wrong: damaged");
  const std::int64_t class_count = std::ranges::count(classes, '\n') + 1;
  for (const std::int32_t label : labels.span<std::int32_t>())
    expect(label >= 0 && label < class_count, "has a label that is out of range: damaged");
  shard.offsets.assign(values.begin(), values.end());
  shard.labels.assign(labels.span<std::int32_t>().begin(), labels.span<std::int32_t>().end());
  for (const std::int64_t sum : sums.span<std::int64_t>())
    shard.checksums.push_back(static_cast<std::uint32_t>(sum));
  return shard;
}

class PackedImages : public EncodedImages {
 public:
  void add(Shard shard) {
    first_.push_back(size_);
    size_ += std::ssize(shard.labels);
    shards_.push_back(std::move(shard));
  }

  /// Reads all but the images, and touches these.
  void try_all() const {
    std::uint8_t byte = 0;
    for (const Shard& shard : shards_) {
      shard.file.read("names");
      if (shard.offsets.back() > 0) shard.file.read_part("bytes", 0, {&byte, 1});
    }
  }

  std::int64_t size() const override { return size_; }
  std::int32_t label(std::int64_t image) const override {
    const auto [shard, at] = find(image);
    return shard.labels[at];
  }
  std::string place(std::int64_t image) const override {
    const auto [shard, at] = find(image);
    return fmt::format("{}, image {}", shard.file.path(), at);
  }
  std::string name(std::int64_t image) const override {
    const auto [shard, at] = find(image);
    const std::scoped_lock lock(mutex_);
    if (named_ != &shard) {
      const Tensor text = shard.file.read("names");
      names_.assign(1, "");
      for (const std::uint8_t c : text.span<std::uint8_t>()) {
        if (c == 0)
          names_.emplace_back();
        else
          names_.back().push_back(static_cast<char>(c));
      }
      named_ = &shard;
    }
    check(std::ssize(names_) == std::ssize(shard.labels) + 1, "data",
          "{}: has {} names for {} images: damaged", shard.file.path(), names_.size() - 1,
          shard.labels.size());
    return names_[at];
  }
  void read(std::int64_t image, Bytes& to) const override {
    const auto [shard, at] = find(image);
    to.resize(static_cast<std::size_t>(shard.offsets[at + 1] - shard.offsets[at]));
    shard.file.read_part("bytes", shard.offsets[at], to);
    if (checksum(to) != shard.checksums[at])
      throw BadImage(error_text("data", place(image) + ": its checksum is wrong: damaged on disk"),
                     std::source_location::current());
  }

 private:
  struct Place {
    const Shard& shard;
    std::int64_t at;
  };
  Place find(std::int64_t image) const {
    const auto shard = std::ranges::upper_bound(first_, image) - first_.begin() - 1;
    return {shards_[shard], image - first_[shard]};
  }

  std::vector<Shard> shards_;
  std::vector<std::int64_t> first_;  // image of each shard
  std::int64_t size_ = 0;
  mutable std::mutex mutex_;  // guards:
  mutable const Shard* named_ = nullptr;
  mutable std::vector<std::string> names_;
};

/// The shards of a part; how many there should be, the name of any says.
std::shared_ptr<const PackedImages> open_part(const std::string& directory, const std::string& part,
                                              std::string& classes) {
  std::vector<std::string> found = find_shards(directory);
  std::erase_if(found, [&](const std::string& name) { return !name.starts_with(part + "-"); });
  check(!found.empty(), "data", "{}: expected {} and so on in it, as ssn pack writes them; found none",
        directory, shard_name(part, 0, 1));
  const std::int64_t shards = std::stoll(found[0].substr(found[0].size() - 7));
  auto images = std::make_shared<PackedImages>();
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    const std::string name = shard_name(part, shard, shards);
    const fs::path path = fs::path(directory) / name;
    check(std::ranges::binary_search(found, name), "data",
          "{}: is missing: copy it, or pack the images again", path.string());
    images->add(open_shard(path, part, shard, shards, classes));
  }
  check(std::ssize(found) == shards, "data",
        "{}: has files of two packings, such as {} and {}: remove one, or pack the images again", directory,
        found[0], found.back());
  return images;
}

/// The image as it is to be packed: made smaller if its shorter side is longer than `size`.
class Packer {
 public:
  explicit Packer(const PackOptions& options) : options_(options) {}

  /// Returns whether it was resized.
  bool pack(Bytes& file, const std::string& place) {
    if (options_.size == 0 && !options_.skip_bad) return false;
    const ImageExtent from = image_extent(file, place);
    const std::int64_t shorter = std::min(from.height, from.width);
    const bool resize = options_.size > 0 && shorter > options_.size;
    const double scale = resize ? static_cast<double>(options_.size) / static_cast<double>(shorter) : 1;
    const ImageExtent to{std::llround(static_cast<double>(from.height) * scale),
                         std::llround(static_cast<double>(from.width) * scale)};
    decode(file, place, {0, 0, from.height, from.width}, to, decoded_);
    if (!resize) return false;
    pixels_.resize(static_cast<std::size_t>(3 * to.height * to.width));
    resizer_.resize(decoded_, to, pixels_.data());
    constexpr int kQuality = 95;
    file = encode_jpeg(pixels_.data(), to, kQuality);
    return true;
  }

 private:
  PackOptions options_;
  Decoded decoded_;
  Resizer resizer_;
  Bytes pixels_;
};

}  // namespace

std::string shard_name(const std::string& part, std::int64_t shard, std::int64_t shards) {
  return fmt::format("{}-{:04}-of-{:04}.h5", part, shard + 1, shards);
}

std::vector<std::string> find_shards(const std::string& directory) {
  static const std::regex pattern("(train|val)-[0-9]{4}-of-[0-9]{4}\\.h5");
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (std::regex_match(name, pattern)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::int64_t usual_shards(const EncodedImages& images) {
  constexpr std::int64_t kSamples = 100;
  constexpr double kBytes = 512.0 * (1 << 20);
  const std::int64_t n = images.size(), count = std::min(kSamples, n);
  Bytes file;
  double bytes = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    images.read(i * n / count, file);
    bytes += static_cast<double>(file.size()) * static_cast<double>(n) / static_cast<double>(count);
  }
  return std::clamp<std::int64_t>(std::llround(std::ceil(bytes / kBytes)), 1, n);
}

PackedShard write_shard(const std::string& directory, const std::string& part, std::int64_t shard,
                        std::int64_t shards, const EncodedImages& images,
                        const std::vector<std::string>& classes, const PackOptions& options) {
  PackedShard result;
  Packer packer(options);
  Bytes file, bytes, names;
  std::vector<std::int64_t> offsets{0}, checksums;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = images.size() * shard / shards; i < images.size() * (shard + 1) / shards; ++i) {
    try {
      images.read(i, file);
      result.resized += static_cast<std::int64_t>(packer.pack(file, images.place(i)));
    } catch (const BadImage& bad) {
      if (!options.skip_bad)
        throw BadImage(
            fmt::format("{}; fetch it again or remove it, or leave it out: --skip-bad", bad.what()),
            std::source_location::current());
      ++result.left_out;
      continue;
    }
    bytes.insert(bytes.end(), file.begin(), file.end());
    offsets.push_back(std::ssize(bytes));
    checksums.push_back(checksum(file));
    labels.push_back(images.label(i));
    const std::string name = images.name(i);
    names.insert(names.end(), name.c_str(), name.c_str() + name.size() + 1);
  }
  result.images = std::ssize(labels), result.bytes = std::ssize(bytes);
  replace_file(fs::path(directory) / shard_name(part, shard, shards), [&](const std::string& temporary) {
    Hdf5File out = Hdf5File::create(temporary);
    out.set_attribute("", "format", kFormat);
    out.set_attribute("", "format_version", kFormatVersion);
    out.set_attribute("", "part", part);
    out.set_attribute("", "shard", shard);
    out.set_attribute("", "shards", shards);
    out.set_attribute("", "classes", fmt::format("{}", fmt::join(classes, "\n")));
    out.write("bytes", list_of(bytes), Layout::plain);
    out.write("offsets", list_of(offsets));
    out.write("labels", list_of(labels));
    out.write("checksums", list_of(checksums));
    out.write("names", list_of(names));
    out.close();
  });
  return result;
}

EncodedSets open_image_pack(const std::string& directory) {
  std::error_code error;
  check(fs::is_directory(directory, error), "data", "{}: there is no such directory", directory);
  constexpr int kSeconds = 60;
  try_in_child(
      directory,
      [&] {
        std::string classes;
        for (const char* part : {"train", "val"}) open_part(directory, part, classes)->try_all();
      },
      kSeconds);
  std::string classes;
  EncodedSets sets;
  sets.train = open_part(directory, "train", classes);
  sets.test = open_part(directory, "val", classes);
  for (std::size_t at = 0, end; at <= classes.size(); at = end + 1) {
    end = std::min(classes.find('\n', at), classes.size());
    sets.classes.push_back(classes.substr(at, end - at));
  }
  check(sets.train->size() > 0 && sets.test->size() > 0, "data", "{}: has no images", directory);
  return sets;
}

}  // namespace ssn
