#include "datasets/idx.h"

#include <array>

#include "datasets/gz_file.h"

namespace ssn {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x0800;  // the magic number is this + the number of extents

std::uint32_t read_word(GzFile& file) {
  std::array<std::uint8_t, 4> b{};
  file.read_exactly(b, "the IDX header");
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
}

/// Extents of an IDX file of unsigned bytes whose content fits in the file.
template <int kRank>
std::array<std::int64_t, kRank> read_header(GzFile& file, std::string_view what) {
  constexpr std::uint32_t kMagic = kUnsignedBytes + kRank;
  const std::uint32_t magic = read_word(file);
  file.check(magic == kMagic, "is not an IDX file of {}: expected the magic number 0x{:08x}, found 0x{:08x}",
             what, kMagic, magic);
  std::array<std::int64_t, kRank> extents;
  std::uint64_t bytes = 1;
  bool fits = true;
  for (std::int64_t& extent : extents) {
    extent = read_word(file);
    fits = fits && (extent == 0 || bytes <= file.most_bytes() / static_cast<std::uint64_t>(extent));
    bytes *= static_cast<std::uint64_t>(extent);
  }
  const std::string text = fmt::format("{}", fmt::join(extents, " x "));
  file.check(fits, "truncated, or not an IDX file: its header says {} {}, more than can be in it", text,
             what);
  file.check(bytes > 0, "holds no {}: its header says {}", what, text);
  return extents;
}

}  // namespace

Tensor read_idx_images(const std::string& path) {
  GzFile file(path);
  const auto [n, h, w] = read_header<3>(file, "images");
  const Tensor images = Tensor::empty({n, h, w, 1}, DType::u8);
  file.read_exactly(images.span<std::uint8_t>(), fmt::format("the content ({} images of {} x {})", n, h, w));
  file.expect_end(fmt::format("{} images of {} x {}", n, h, w));
  return images;
}

Tensor read_idx_labels(const std::string& path) {
  GzFile file(path);
  const auto [n] = read_header<1>(file, "labels");
  const Tensor labels = Tensor::empty({n}, DType::u8);
  file.read_exactly(labels.span<std::uint8_t>(), fmt::format("the content ({} labels)", n));
  file.expect_end(fmt::format("{} labels", n));
  return labels.to(DType::i32);
}

ImageSet read_idx_set(const std::string& directory, const std::string& prefix, std::int64_t classes) {
  const std::string images_path = find_data_file(directory, prefix + "-images-idx3-ubyte");
  const std::string labels_path = find_data_file(directory, prefix + "-labels-idx1-ubyte");
  const ImageSet set{.images = read_idx_images(images_path), .labels = read_idx_labels(labels_path)};
  const std::int64_t count = set.labels.size();
  check(count == set.size(), "data", "{}: holds {} labels, but {} holds {} images", labels_path, count,
        images_path, set.size());
  for (std::int64_t i = 0; classes > 0 && i < count; ++i) {
    const std::int32_t label = set.labels.data<std::int32_t>()[i];
    check(label < classes, "data", "{}: label {} of image {} is out of range; expected 0 to {}", labels_path,
          label, i, classes - 1);
  }
  return set;
}

}  // namespace ssn
