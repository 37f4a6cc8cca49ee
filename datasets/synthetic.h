#pragma once
#include <cstdint>

#include "datasets/dataset.h"

namespace ssn {

/// `count` images for which nothing need be read, that a network can learn: each class has a smooth pattern
/// of its own, and each image is its class's pattern under as much noise. Classes take turns. Depends on the
/// arguments alone; sets with the same seed and other streams have the same patterns and other noise.
ImageSet synthetic_images(const InputShape& shape, std::int64_t count, std::uint64_t seed,
                          std::uint64_t stream);

}  // namespace ssn
