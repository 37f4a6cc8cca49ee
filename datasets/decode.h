#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/error.h"

// JPEG and PNG files in memory, told apart by their first bytes. An orientation noted in EXIF is ignored, as
// the usual loaders do. Thread-safe.
namespace ssn {

/// The contents of an image are at fault: empty, truncated, damaged, too large, or of another format. What
/// the system refuses (no such file, no permission) is a plain Error.
class BadImage : public Error {
 public:
  using Error::Error;
};

struct ImageExtent {
  std::int64_t height = 0, width = 0;
};

/// Whole pixels of an image.
struct Rectangle {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

/// Decoded pixels, and where among them the rectangle lies that was asked for: between pixels, where the
/// image was made smaller.
struct Decoded {
  std::vector<std::uint8_t> rgb = {};  // (rows, columns, 3); there may be more behind
  std::int64_t rows = 0, columns = 0;
  double top = 0, left = 0, height = 0, width = 0;
};

/// Of the image in `file`, from its header; `name` is for errors. Throws BadImage, also for more than 10^8
/// pixels.
ImageExtent image_extent(std::span<const std::uint8_t> file, const std::string& name);

/// Decodes `region`, which lies in the image, and little around it. A JPEG is decoded at the smallest of 1/8,
/// 1/4, 1/2 and 1 times its size at which the region has `least` still; CMYK and greys become RGB;
/// transparency is dropped. Throws BadImage for damage up to the region's last row, and wherever a file is
/// cut off.
void decode(std::span<const std::uint8_t> file, const std::string& name, const Rectangle& region,
            const ImageExtent& least, Decoded& to);

/// A JPEG file of u8 (height, width, 3). `quality`: 1 to 100.
std::vector<std::uint8_t> encode_jpeg(const std::uint8_t* rgb, const ImageExtent& extent, int quality);

}  // namespace ssn
