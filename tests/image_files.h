#pragma once
#include <png.h>

#include <cmath>

#include "data_files.h"
#include "datasets/decode.h"
#include "runtime/random.h"

// Generated images as files.
namespace ssn::test {

/// u8 RGB, row-major.
struct Picture {
  ImageExtent extent;
  Bytes rgb;

  const std::uint8_t* at(std::int64_t y, std::int64_t x) const {
    return rgb.data() + 3 * (y * extent.width + x);
  }
};

/// Smooth colours with a little noise, which JPEG keeps well. Another seed, another picture.
inline Picture picture(const ImageExtent& extent, std::uint64_t seed) {
  Picture p{extent, Bytes(static_cast<std::size_t>(3 * extent.height * extent.width))};
  const Random random(seed, "picture");
  std::size_t at = 0;
  for (std::int64_t y = 0; y < extent.height; ++y)
    for (std::int64_t x = 0; x < extent.width; ++x)
      for (std::uint64_t k = 0; k < 3; ++k) {
        const double phase = 6 * random.uniform(3 * k);
        const double up = 0.5 + random.uniform(3 * k + 1), along = 0.5 + random.uniform(3 * k + 2);
        const double wave =
            std::sin(phase + static_cast<double>(y) / 40 * up + static_cast<double>(x) / 40 * along);
        p.rgb[at] = static_cast<std::uint8_t>(120 + 100 * wave + 8 * random.uniform(100 + at));
        ++at;
      }
  return p;
}

inline Bytes jpeg_of(const Picture& p, int quality = 95) {
  return encode_jpeg(p.rgb.data(), p.extent, quality);
}

/// `format`: one of libpng's, such as PNG_FORMAT_RGB, of the pixels.
inline Bytes png_of(const ImageExtent& extent, const Bytes& pixels, std::uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(extent.width),
  image.height = static_cast<png_uint_32>(extent.height);
  image.format = format;
  png_alloc_size_t bytes = 0;
  EXPECT_NE(png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, nullptr), 0);
  Bytes file(bytes);
  EXPECT_NE(png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr), 0);
  return file;
}
inline Bytes png_of(const Picture& p) {
  return png_of(p.extent, p.rgb, PNG_FORMAT_RGB);
}

/// A folder of images: CLASS/image-<i>.jpg (every fourth a PNG) in each part; all sizes differ.
inline void write_image_folder(const std::string& directory, int classes, int train, int test) {
  for (const auto& [part, count] : {std::pair("train", train), std::pair("val", test)})
    for (int label = 0; label < classes; ++label) {
      const std::string folder = fmt::format("{}/{}/class-{}", directory, part, label);
      std::filesystem::create_directories(folder);
      for (int i = 0; i < count; ++i) {
        const std::uint64_t seed = static_cast<std::uint64_t>(label + 100 * i + (part[0] == 'v' ? 10000 : 0));
        const Picture p = picture({20 + i * 7 % 31, 18 + i * 5 % 37}, seed);
        const std::string name = fmt::format("{}/image-{:02}.", folder, i);
        i % 4 == 3 ? write_plain(name + "png", png_of(p)) : write_plain(name + "jpg", jpeg_of(p));
      }
    }
}

}  // namespace ssn::test
