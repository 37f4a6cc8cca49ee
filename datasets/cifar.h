#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "datasets/image_set.h"

// The binary format of CIFAR: records of label bytes and a 32 x 32 image as red, green and blue planes.
namespace ssn {

struct CifarFormat {
  std::int64_t superclasses =
      0;  // 0: a record has one label byte; otherwise that of the superclass comes before it
  std::int64_t classes = 10;
};
inline constexpr CifarFormat kCifar10{.superclasses = 0, .classes = 10};
inline constexpr CifarFormat kCifar100{.superclasses = 20, .classes = 100};

/// All records of these files (gzipped or not) of the directory, in order: images u8 (n, 32, 32, 3).
ImageSet read_cifar(const std::string& directory, std::span<const std::string> names,
                    const CifarFormat& format);

}  // namespace ssn
