#include "datasets/decode.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it before
#include <cstdlib>
#include <cstring>
#include <source_location>

#include <jerror.h>   // NOLINT: needs jpeglib.h before
#include <jpeglib.h>  // NOLINT

#include <algorithm>
#include <cmath>

#include "runtime/liveness.h"

namespace ssn {
namespace {

using File = std::span<const std::uint8_t>;
constexpr std::int64_t kMostPixels = 100'000'000;

template <class... A>
[[noreturn]] void bad(const std::string& name, fmt::format_string<A...> format, A&&... args) {
  throw BadImage(error_text("image", name + ": " + fmt::format(format, std::forward<A>(args)...)),
                 std::source_location::current());
}

ImageExtent checked(std::int64_t height, std::int64_t width, const std::string& name) {
  if (height * width > kMostPixels)
    bad(name, "has {} x {} pixels; at most {} are read: make it smaller", width, height, kMostPixels);
  return {height, width};
}

/// libjpeg's error handler must not return. It jumps back to run(), past frames of C alone.
struct JpegErrors {
  jpeg_error_mgr manager;  // the first member: the library knows its address
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];

  JpegErrors() {
    jpeg_std_error(&manager);
    manager.error_exit = [](j_common_ptr info) {
      auto* self = reinterpret_cast<JpegErrors*>(info->err);
      info->err->format_message(info, self->message);
      std::longjmp(self->back, 1);
    };
    manager.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !leaves_pixels_whole(info->err->msg_code)) info->err->error_exit(info);
    };
    manager.output_message = [](j_common_ptr) {};
  }
  /// Of the library's warnings, those that are about other things than pixels.
  static bool leaves_pixels_whole(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM;
  }
};

struct JpegInfo : jpeg_decompress_struct {
  JpegInfo() : jpeg_decompress_struct{} {}
  JpegInfo(const JpegInfo&) = delete;
  ~JpegInfo() { jpeg_destroy_decompress(this); }
};

class JpegReader {
 public:
  JpegReader(File file, const std::string& name) : name_(name) {
    info_.err = &errors_.manager;
    run([&] { jpeg_create_decompress(&info_); });
    run([&] {
      jpeg_mem_src(&info_, file.data(), file.size());
      jpeg_read_header(&info_, TRUE);
    });
    extent_ = checked(info_.image_height, info_.image_width, name);
    // The decoder does not see this when the region ends before.
    const std::uint8_t *begin = info_.src->next_input_byte, *at = begin + info_.src->bytes_in_buffer;
    while (at - begin >= 2 && (at[-2] != 0xff || at[-1] != JPEG_EOI)) --at;
    if (at - begin < 2) bad(name, "is a JPEG that is cut off: its end mark is missing");
  }

  const ImageExtent& extent() const { return extent_; }

  void decode(const Rectangle& region, const ImageExtent& least, Decoded& to) {
    start(region, least);
    const double scale = info_.scale_num / 8.0;
    to.height = static_cast<double>(region.height) * scale;
    to.width = static_cast<double>(region.width) * scale;
    const std::int64_t bottom = std::min<std::int64_t>(
        info_.output_height, std::llround(std::ceil(static_cast<double>(region.top) * scale + to.height)));
    const auto first_row = static_cast<std::int64_t>(static_cast<double>(region.top) * scale);
    // Colours are smoothed between neighbours, so the region's border needs some pixels beyond it.
    constexpr double kMargin = 2;
    const double left = static_cast<double>(region.left) * scale;
    JDIMENSION first_column = static_cast<JDIMENSION>(std::max(0.0, left - kMargin));
    JDIMENSION columns =
        static_cast<JDIMENSION>(std::min<double>(info_.output_width, std::ceil(left + to.width + kMargin))) -
        first_column;
    run([&] { jpeg_crop_scanline(&info_, &first_column, &columns); });
    to.rows = bottom - first_row, to.columns = info_.output_width;
    to.top = static_cast<double>(region.top) * scale - static_cast<double>(first_row);
    to.left = left - first_column;
    read_rows(static_cast<JDIMENSION>(first_row), to);
  }

 private:
  template <class F>
  void run(F&& f) {
    if (setjmp(errors_.back) != 0) bad(name_, "is not a whole JPEG: {}", errors_.message);
    f();
  }

  void start(const Rectangle& region, const ImageExtent& least) {
    info_.scale_num = 1, info_.scale_denom = 8;
    while (info_.scale_num < 8 && (region.height * info_.scale_num < least.height * 8 ||
                                   region.width * info_.scale_num < least.width * 8))
      info_.scale_num *= 2;
    const bool cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    run([&] { jpeg_start_decompress(&info_); });
  }

  void read_rows(JDIMENSION first_row, Decoded& to) {
    const std::int64_t row_bytes = to.columns * info_.output_components;
    const std::size_t bytes = static_cast<std::size_t>(to.rows * row_bytes);
    if (to.rgb.size() < bytes) to.rgb.resize(bytes);
    std::uint8_t* const pixels = to.rgb.data();
    run([&] {
      if (first_row > 0) jpeg_skip_scanlines(&info_, first_row);
      for (std::int64_t y = 0; y < to.rows; ++y) {
        JSAMPROW row = pixels + y * row_bytes;
        jpeg_read_scanlines(&info_, &row, 1);
      }
    });
    if (info_.out_color_space == JCS_CMYK) cmyk_to_rgb(pixels, to.rows * to.columns);
  }

  /// In place. Files with Adobe's mark, which all that matter have, hold how much of a colour is left.
  void cmyk_to_rgb(std::uint8_t* pixels, std::int64_t count) const {
    const int flip = info_.saw_Adobe_marker ? 0 : 255;
    for (std::int64_t i = 0; i < count; ++i) {
      const int black = pixels[4 * i + 3] ^ flip;
      for (int k = 0; k < 3; ++k)
        pixels[3 * i + k] = static_cast<std::uint8_t>(((pixels[4 * i + k] ^ flip) * black + 127) / 255);
    }
  }

  const std::string& name_;
  JpegErrors errors_;
  JpegInfo info_;
  ImageExtent extent_;
};

struct PngImage : png_image {
  PngImage() : png_image{} {}
  PngImage(const PngImage&) = delete;
  ~PngImage() { png_image_free(this); }
};

class PngReader {
 public:
  PngReader(File file, const std::string& name) : name_(name) {
    image_.version = PNG_IMAGE_VERSION;
    require(png_image_begin_read_from_memory(&image_, file.data(), file.size()));
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // not before: beginning clears it
    extent_ = checked(image_.height, image_.width, name);
    constexpr std::size_t kBits = 24, kInterlaced = 28;  // in the file, whose header is whole
    if (file[kBits] == 16 && file[kInterlaced] != 0)     // libpng 1.6 mixes up their rows
      bad(name, "is an interlaced PNG of 16 bits: save it without interlacing");
  }

  const ImageExtent& extent() const { return extent_; }

  void decode(const Rectangle& region, Decoded& to) {
    const bool alpha = (image_.format & PNG_FORMAT_FLAG_ALPHA) != 0;
    image_.format = alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    const std::size_t bytes = PNG_IMAGE_SIZE(image_);
    if (to.rgb.size() < bytes) to.rgb.resize(bytes);
    require(png_image_finish_read(&image_, nullptr, to.rgb.data(), 0, nullptr));
    for (std::int64_t i = 0; alpha && i < extent_.height * extent_.width; ++i)
      std::memmove(to.rgb.data() + 3 * i, to.rgb.data() + 4 * i, 3);
    to.rows = extent_.height, to.columns = extent_.width;
    to.top = static_cast<double>(region.top), to.left = static_cast<double>(region.left);
    to.height = static_cast<double>(region.height), to.width = static_cast<double>(region.width);
  }

 private:
  void require(int done) {
    if (done == 0) bad(name_, "is not a whole PNG: {}", image_.message);
  }

  const std::string& name_;
  PngImage image_;
  ImageExtent extent_;
};

bool is_png(File file, const std::string& name) {
  constexpr std::uint8_t kPng[] = {0x89, 'P', 'N', 'G'}, kJpeg[] = {0xff, 0xd8};
  const auto begins = [&](File mark) {
    return file.size() >= mark.size() && std::equal(mark.begin(), mark.end(), file.begin());
  };
  if (file.empty()) bad(name, "is empty");
  if (!begins(kPng) && !begins(kJpeg)) bad(name, "is neither a JPEG nor a PNG");
  return begins(kPng);
}

}  // namespace

ImageExtent image_extent(File file, const std::string& name) {
  return is_png(file, name) ? PngReader(file, name).extent() : JpegReader(file, name).extent();
}

void decode(File file, const std::string& name, const Rectangle& region, const ImageExtent& least,
            Decoded& to) {
  note_progress();
  if (is_png(file, name))
    PngReader(file, name).decode(region, to);
  else
    JpegReader(file, name).decode(region, least, to);
}

std::vector<std::uint8_t> encode_jpeg(const std::uint8_t* rgb, const ImageExtent& extent, int quality) {
  JpegErrors errors;
  jpeg_compress_struct info{};
  unsigned char* out = nullptr;
  unsigned long bytes = 0;
  info.err = &errors.manager;
  const auto compress = [&] {
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &out, &bytes);
    info.image_height = static_cast<JDIMENSION>(extent.height);
    info.image_width = static_cast<JDIMENSION>(extent.width);
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    info.optimize_coding = TRUE;
    jpeg_start_compress(&info, TRUE);
    for (std::int64_t y = 0; y < extent.height; ++y) {
      JSAMPROW row = const_cast<std::uint8_t*>(rgb) + y * extent.width * 3;
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  };
  const bool failed = setjmp(errors.back) != 0;
  if (!failed) compress();
  std::vector<std::uint8_t> file(out, out + (failed ? 0 : bytes));
  jpeg_destroy_compress(&info);
  std::free(out);
  check(!failed, "image", "an image of {} x {} pixels cannot be written as JPEG: {}", extent.width,
        extent.height, errors.message);
  return file;
}

}  // namespace ssn
