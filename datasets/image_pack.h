#pragma once
#include "datasets/encoded_images.h"

// Files of images put together into a few large ones, for file systems that are slow with many small ones.
//
// A directory holds train-0001-of-0008.h5 and so on, and val-... alike. A file is HDF5: `bytes` (u8: the
// encoded images one after another), `offsets` (i64: where each begins, and the end), `labels` (i32),
// `checksums` (i64: CRC-32 of each), `names` (u8: each with a zero behind); attributes `format`,
// `format_version`, `part`, `shard`, `shards`, and `classes`, the names a line each.
namespace ssn {

struct PackOptions {
  std::int64_t size = 0;  // images whose shorter side is longer are made this small; 0: all stay as they are
  bool skip_bad = false;  // decode each image, and leave out those that are damaged
};

struct PackedShard {
  std::int64_t images = 0, bytes = 0;
  std::int64_t resized = 0, left_out = 0;
};

/// "train-0001-of-0008.h5".
std::string shard_name(const std::string& part, std::int64_t shard, std::int64_t shards);
/// The files in a directory that have such names, sorted; of none that is not there.
std::vector<std::string> find_shards(const std::string& directory);

/// As many files as keep each below 512 MiB, judged by some of the images.
std::int64_t usual_shards(const EncodedImages& images);

/// Shard `shard`, in [0, shards), of a part ("train" or "val"): an even, contiguous share of the images, in
/// their order. It is put together in memory, then written at once under its name. Damage is an Error that
/// names the image, where images are decoded: with size or skip_bad.
PackedShard write_shard(const std::string& directory, const std::string& part, std::int64_t shard,
                        std::int64_t shards, const EncodedImages& images,
                        const std::vector<std::string>& classes, const PackOptions& options);

/// What was written so; a missing, truncated or foreign file is an Error that names it. Damage within an
/// image is found when that is read. Reads all but names and images.
EncodedSets open_image_pack(const std::string& directory);

}  // namespace ssn
