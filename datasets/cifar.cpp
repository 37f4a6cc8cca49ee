#include "datasets/cifar.h"

#include <algorithm>
#include <vector>

#include "datasets/gz_file.h"

namespace ssn {
namespace {

constexpr std::int64_t kSide = 32, kPixels = kSide * kSide, kChannels = 3;

struct Records {
  std::vector<std::uint8_t> images;  // (n, 32, 32, 3)
  std::vector<std::int32_t> labels;
};

/// Appends a file's records. Memory grows with what has been read, not with what a name or size promises.
void read_records(const std::string& path, const CifarFormat& format, Records& records) {
  const std::size_t label_bytes = format.superclasses > 0 ? 2 : 1;
  std::vector<std::uint8_t> record(label_bytes + kPixels * kChannels);
  GzFile file(path);
  for (std::int64_t i = 0;; ++i) {
    const std::size_t count = file.read(record);
    file.check(count > 0 || i > 0, "is empty");
    if (count == 0) return;
    file.check(
        count == record.size(),
        "truncated, too long or of another format: {} bytes are left after {} whole records of {} bytes",
        count, i, record.size());
    file.check(
        label_bytes == 1 || record[0] < format.superclasses,
        "superclass label {} of record {} is out of range; expected 0 to {}: damaged, or of another format",
        record[0], i, format.superclasses - 1);
    const std::uint8_t label = record[label_bytes - 1];
    file.check(label < format.classes,
               "label {} of record {} is out of range; expected 0 to {}: damaged, or of another format",
               label, i, format.classes - 1);
    records.labels.push_back(label);
    const std::uint8_t* planes = record.data() + label_bytes;
    records.images.resize(records.images.size() + kPixels * kChannels);
    std::uint8_t* pixels = records.images.data() + records.images.size() - kPixels * kChannels;
    for (std::int64_t p = 0; p < kPixels; ++p)
      for (std::int64_t c = 0; c < kChannels; ++c) pixels[p * kChannels + c] = planes[c * kPixels + p];
  }
}

}  // namespace

ImageSet read_cifar(const std::string& directory, std::span<const std::string> names,
                    const CifarFormat& format) {
  Records records;
  for (const std::string& name : names) read_records(find_data_file(directory, name), format, records);
  const auto n = static_cast<std::int64_t>(records.labels.size());
  return {.images = Tensor::of<std::uint8_t>({n, kSide, kSide, kChannels}, records.images),
          .labels = Tensor::of<std::int32_t>({n}, records.labels)};
}

}  // namespace ssn
