#pragma once
#include <string>

#include "datasets/image_set.h"

// The IDX format of MNIST: a big-endian magic number and extents, then unsigned bytes.
namespace ssn {

/// Images of one channel, u8 (n, h, w, 1). The file may be gzipped.
Tensor read_idx_images(const std::string& path);
/// i32 (n), each in 0..255.
Tensor read_idx_labels(const std::string& path);

/// The files PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte, gzipped or not. Labels must be below
/// `classes`; 0: any.
ImageSet read_idx_set(const std::string& directory, const std::string& prefix, std::int64_t classes);

}  // namespace ssn
