// JPEG and PNG files, cutting and resizing.
#include "datasets/decode.h"

#include <gtest/gtest.h>

#include <cstdio>

#include <jpeglib.h>  // NOLINT: after stdio.h

#include <map>

#include "datasets/crop.h"
#include "image_files.h"

namespace ssn::test {
namespace {

Rectangle whole(const ImageExtent& e) {
  return {0, 0, e.height, e.width};
}
Decoded decoded(const Bytes& file, const Rectangle& region, const ImageExtent& least = {1 << 20, 1 << 20}) {
  Decoded d;
  decode(file, "test.jpg", region, least, d);
  return d;
}
Decoded decoded(const Bytes& file) {
  return decoded(file, whole(image_extent(file, "test.jpg")));
}

/// A JPEG of pixels with `components` values each, told to be in `space`, kept as `kept`.
Bytes jpeg_as(const ImageExtent& extent, const Bytes& pixels, int components, J_COLOR_SPACE space,
              J_COLOR_SPACE kept, bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &out, &bytes);
  info.image_height = static_cast<JDIMENSION>(extent.height);
  info.image_width = static_cast<JDIMENSION>(extent.width);
  info.input_components = components;
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, kept);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (std::int64_t y = 0; y < extent.height; ++y) {
    JSAMPROW row = const_cast<std::uint8_t*>(pixels.data()) + y * extent.width * components;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  Bytes file(out, out + bytes);
  jpeg_destroy_compress(&info);
  std::free(out);
  return file;
}

/// The largest and the mean difference between what was asked for and the picture at that place.
struct Difference {
  int most = 0;
  double mean = 0;
};
Difference difference(const Decoded& d, const Picture& p, const Rectangle& region) {
  Difference result;
  EXPECT_EQ(std::pair(d.height, d.width), std::pair(double(region.height), double(region.width)));
  for (std::int64_t y = 0; y < region.height; ++y)
    for (std::int64_t x = 0; x < region.width; ++x)
      for (int k = 0; k < 3; ++k) {
        const auto row = static_cast<std::int64_t>(d.top) + y, column = static_cast<std::int64_t>(d.left) + x;
        const int found = d.rgb[3 * (row * d.columns + column) + k];
        const int by = std::abs(found - p.at(region.top + y, region.left + x)[k]);
        result.most = std::max(result.most, by);
        result.mean += by / static_cast<double>(3 * region.height * region.width);
      }
  return result;
}

TEST(Decode, APngIsExact) {
  const Picture p = picture({13, 17}, 1);
  const Bytes file = png_of(p);
  EXPECT_EQ(image_extent(file, "x").height, 13);
  EXPECT_EQ(image_extent(file, "x").width, 17);
  EXPECT_EQ(difference(decoded(file), p, whole(p.extent)).most, 0);
  const Rectangle part{3, 5, 7, 11};
  EXPECT_EQ(difference(decoded(file, part), p, part).most, 0);
}

TEST(Decode, PngsOfEveryKindBecomeRgb) {
  const ImageExtent extent{4, 5};
  Picture p = picture(extent, 2);
  Bytes with_alpha, grey, deep;
  for (std::size_t i = 0; i < 20; ++i) {
    with_alpha.insert(with_alpha.end(), &p.rgb[3 * i], &p.rgb[3 * i] + 3);
    with_alpha.push_back(static_cast<std::uint8_t>(i * 12));  // transparency is dropped, whatever it is
    grey.push_back(p.rgb[3 * i]);
  }
  EXPECT_EQ(difference(decoded(png_of(extent, with_alpha, PNG_FORMAT_RGBA)), p, whole(extent)).most, 0);
  for (std::size_t i = 0; i < 20; ++i) p.rgb[3 * i + 1] = p.rgb[3 * i + 2] = p.rgb[3 * i];
  EXPECT_EQ(difference(decoded(png_of(extent, grey, PNG_FORMAT_GRAY)), p, whole(extent)).most, 0);
}

TEST(Decode, AJpegIsClose) {
  const Picture p = picture({45, 61}, 3);
  const Difference found = difference(decoded(jpeg_of(p)), p, whole(p.extent));
  EXPECT_LE(found.mean, 2.5);
  EXPECT_LE(found.most, 24);
}

TEST(Decode, JpegsOfEveryKindBecomeRgb) {
  const ImageExtent extent{24, 40};
  const Picture p = picture(extent, 4);
  const auto mean = [&](const Bytes& file) { return difference(decoded(file), p, whole(extent)).mean; };
  EXPECT_LE(mean(jpeg_as(extent, p.rgb, 3, JCS_RGB, JCS_RGB)), 2.5);
  EXPECT_LE(mean(jpeg_as(extent, p.rgb, 3, JCS_RGB, JCS_YCbCr, true)), 2.5) << "progressive";
  // Adobe's files hold what is left of each colour: full black is 0.
  Bytes cmyk;
  for (std::size_t i = 0; i < p.rgb.size(); i += 3) {
    cmyk.insert(cmyk.end(), &p.rgb[i], &p.rgb[i] + 3);
    cmyk.push_back(255);
  }
  EXPECT_LE(mean(jpeg_as(extent, cmyk, 4, JCS_CMYK, JCS_CMYK)), 2.5);
  EXPECT_LE(mean(jpeg_as(extent, cmyk, 4, JCS_CMYK, JCS_YCCK)), 3.5);
  Picture half = p;
  for (std::size_t i = 0; i < half.rgb.size(); ++i) half.rgb[i] = static_cast<std::uint8_t>(p.rgb[i] / 2);
  for (std::size_t i = 3; i < cmyk.size(); i += 4) cmyk[i] = 128;
  const Bytes file = jpeg_as(extent, cmyk, 4, JCS_CMYK, JCS_CMYK);
  EXPECT_LE(difference(decoded(file), half, whole(extent)).mean, 2.5) << "black makes it darker";
  Picture grey = p;
  Bytes values;
  for (std::size_t i = 0; i < p.rgb.size(); i += 3) {
    values.push_back(p.rgb[i]);
    grey.rgb[i + 1] = grey.rgb[i + 2] = p.rgb[i];
  }
  EXPECT_LE(
      difference(decoded(jpeg_as(extent, values, 1, JCS_GRAYSCALE, JCS_GRAYSCALE)), grey, whole(extent)).mean,
      2.5);
}

/// Every rectangle, as if the whole had been decoded and cut.
TEST(Decode, APartOfAJpegIsThatPartOfTheWhole) {
  const Picture p = picture({70, 90}, 5);
  for (const bool progressive : {false, true}) {
    const Bytes file = progressive ? jpeg_as(p.extent, p.rgb, 3, JCS_RGB, JCS_YCbCr, true) : jpeg_of(p);
    Decoded all = decoded(file);
    Picture same{p.extent, Bytes(all.rgb.begin(), all.rgb.begin() + 3 * 70 * 90)};
    const Random random(1, "rectangles");
    for (std::uint64_t i = 0; i < 60; ++i) {
      const std::int64_t h = 1 + random.below(70, 4 * i), w = 1 + random.below(90, 4 * i + 1);
      const Rectangle part{random.below(71 - h, 4 * i + 2), random.below(91 - w, 4 * i + 3), h, w};
      ASSERT_EQ(difference(decoded(file, part), same, part).most, 0)
          << fmt::format("{} x {} from {}, {}", h, w, part.top, part.left);
    }
  }
}

TEST(Decode, AJpegIsDecodedNoLargerThanNeeded) {
  const Bytes file = jpeg_of(picture({160, 240}, 6));
  const auto size = [&](const ImageExtent& least) {
    const Decoded d = decoded(file, {0, 0, 160, 240}, least);
    return std::pair(d.rows, d.columns);
  };
  EXPECT_EQ(size({160, 240}), std::pair(std::int64_t{160}, std::int64_t{240}));
  EXPECT_EQ(size({81, 10}), std::pair(std::int64_t{160}, std::int64_t{240}));
  EXPECT_EQ(size({80, 120}), std::pair(std::int64_t{80}, std::int64_t{120}));
  EXPECT_EQ(size({10, 61}), std::pair(std::int64_t{80}, std::int64_t{120}));
  EXPECT_EQ(size({40, 60}), std::pair(std::int64_t{40}, std::int64_t{60}));
  EXPECT_EQ(size({1, 1}), std::pair(std::int64_t{20}, std::int64_t{30}));
  const Decoded part = decoded(file, {40, 60, 80, 100}, {20, 20});
  EXPECT_EQ(std::pair(part.height, part.width), std::pair(20.0, 25.0));
  EXPECT_LT(part.rows * part.columns, 40 * 60);
}

void expect_bad(const Bytes& file, const std::string& part) {
  const auto read = [&] { decoded(file); };
  expect_error<BadImage>(read, {"test.jpg: ", part});
}

TEST(Decode, NamesWhatIsWrongWithAFile) {
  const Picture p = picture({50, 60}, 7);
  const Bytes jpeg = jpeg_of(p), png = png_of(p);
  expect_bad({}, "is empty");
  expect_bad({'G', 'I', 'F', '8'}, "is neither a JPEG nor a PNG");
  expect_bad({0xff}, "is neither");
  expect_bad({0xff, 0xd8}, "is not a whole JPEG");
  expect_bad({0x89, 'P', 'N', 'G', 13, 10, 26, 10}, "is not a whole PNG");
  expect_bad(Bytes(jpeg.begin(), jpeg.end() - 1), "cut off: its end mark is missing");
  expect_bad(Bytes(png.begin(), png.end() - 20), "is not a whole PNG");
  Bytes flipped = png;
  flipped[png.size() / 2] ^= 0x10;
  expect_bad(flipped, "is not a whole PNG");
  Bytes cut(jpeg.begin(), jpeg.begin() + 2 * jpeg.size() / 3);  // with an end mark all the same
  cut.push_back(0xff), cut.push_back(0xd9);
  expect_bad(cut, "is not a whole JPEG");
  const auto top = [&] { decoded(Bytes(jpeg.begin(), jpeg.end() - 2), {0, 0, 8, 8}); };
  expect_error<BadImage>(top, {"cut off"});
}

/// A grey PNG of one row, of 16 bits a value.
Bytes png_of_16_bits(const std::vector<std::uint16_t>& values, std::uint8_t interlaced) {
  Bytes png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const auto append = [&](const char* kind, const Bytes& data) {
    append_word(png, static_cast<std::uint32_t>(data.size()));
    const std::size_t first = png.size();
    png.insert(png.end(), kind, kind + 4);
    png.insert(png.end(), data.begin(), data.end());
    append_word(png, static_cast<std::uint32_t>(crc32(0, png.data() + first, data.size() + 4)));
  };
  Bytes header, row = {0}, packed(1000);
  append_word(header, static_cast<std::uint32_t>(values.size()));
  append_word(header, 1);
  header.insert(header.end(), {16, 0, 0, 0, interlaced});
  for (const std::uint16_t v : values)
    row.insert(row.end(), {static_cast<std::uint8_t>(v >> 8), static_cast<std::uint8_t>(v)});
  uLongf size = packed.size();
  compress(packed.data(), &size, row.data(), row.size());
  packed.resize(size);
  append("IHDR", header), append("IDAT", packed), append("IEND", {});
  return png;
}

/// Values without a note on their gamma are what those of 8 bits would be.
TEST(Decode, TakesTheUpperHalfOf16Bits) {
  const Decoded d = decoded(png_of_16_bits({0, 50 * 257, 128 * 257, 65535}, 0));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(d.rgb[3 * i], (Bytes{0, 50, 128, 255})[i]);
  expect_bad(png_of_16_bits({1, 2}, 1), "save it without interlacing");
}

/// The sizes in the header alone.
TEST(Decode, RefusesHugeImages) {
  Bytes jpeg = jpeg_of(picture({16, 16}, 8)), png = png_of(picture({16, 16}, 8));
  const Bytes mark = {0xff, 0xc0};
  const auto frame = std::search(jpeg.begin(), jpeg.end(), mark.begin(), mark.end());
  ASSERT_NE(frame, jpeg.end());
  for (int i = 5; i < 9; ++i) frame[i] = 0xf0;
  expect_bad(jpeg, "has 61680 x 61680 pixels; at most 100000000");
  for (const int i : {18, 22}) png[i] = 0xf0;  // of 16 + 4 bytes of width and height
  Bytes checksum;
  append_word(checksum, static_cast<std::uint32_t>(crc32(0, png.data() + 12, 17)));
  std::copy(checksum.begin(), checksum.end(), png.begin() + 29);
  expect_bad(png, "has 61456 x 61456 pixels; at most 100000000");
}

TEST(Decode, NoDamageEndsTheProgram) {
  const Picture p = picture({30, 40}, 9);
  const Random random(2, "damage");
  testing::internal::CaptureStderr();
  int refused = 0;
  for (const Bytes& good : {jpeg_of(p), png_of(p), jpeg_as(p.extent, p.rgb, 3, JCS_RGB, JCS_YCbCr, true)})
    for (std::uint64_t i = 0; i < 600; ++i) {
      Bytes file = good;
      if (i % 3 == 0) file.resize(static_cast<std::size_t>(random.below(std::ssize(file), 10 * i)));
      for (std::uint64_t k = 1; k < 1 + i % 5 && !file.empty(); ++k)
        file[random.below(std::ssize(file), 10 * i + k)] = static_cast<std::uint8_t>(random.bits(10 * i + k));
      try {
        const ImageExtent e = image_extent(file, "x");
        decoded(file, {e.height / 3, e.width / 4, e.height - e.height / 2, e.width - e.width / 2}, {8, 8});
      } catch (const BadImage&) {
        ++refused;
      }
    }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GT(refused, 600);
}

/// The same written naively, in doubles, over the part alone.
std::vector<double> resized_naively(const Picture& p, const ImageExtent& to) {
  const auto along = [](std::int64_t from, std::int64_t n) {
    const double step = static_cast<double>(from) / static_cast<double>(n), reach = std::max(1.0, step);
    std::vector<std::map<std::int64_t, double>> weights(n);
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < from; ++j) {
        const double far = std::abs(static_cast<double>(j) + 0.5 - (static_cast<double>(i) + 0.5) * step);
        if (far < reach) sum += weights[i][j] = 1 - far / reach;
      }
      for (auto& [j, w] : weights[i]) w /= sum;
    }
    return weights;
  };
  const auto rows = along(p.extent.height, to.height), columns = along(p.extent.width, to.width);
  std::vector<double> out;
  for (const auto& row : rows)
    for (const auto& column : columns)
      for (int k = 0; k < 3; ++k) {
        double sum = 0;
        for (const auto& [y, a] : row)
          for (const auto& [x, b] : column) sum += a * b * p.at(y, x)[k];
        out.push_back(sum);
      }
  return out;
}

TEST(Resizer, AveragesTriangles) {
  Resizer resizer;
  for (const auto& [from, to] : {std::pair<ImageExtent, ImageExtent>{{40, 50}, {9, 20}},
                                 {{9, 7}, {20, 30}},
                                 {{12, 12}, {12, 12}},
                                 {{33, 5}, {7, 7}},
                                 {{1, 1}, {4, 3}}}) {
    const Picture p = picture(from, 10);
    Bytes out(static_cast<std::size_t>(3 * to.height * to.width));
    resizer.resize(decoded(png_of(p)), to, out.data());
    const std::vector<double> expected = resized_naively(p, to);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1.01) << i;
  }
}

TEST(Resizer, APartIsResizedAsIfItHadBeenCutOut) {
  const Picture p = picture({40, 50}, 11);
  const Rectangle part{7, 9, 21, 30};
  Picture cut{{21, 30}, {}};
  for (std::int64_t y = 0; y < 21; ++y) cut.rgb.insert(cut.rgb.end(), p.at(7 + y, 9), p.at(7 + y, 39));
  Bytes a(3 * 8 * 9), b(3 * 8 * 9);
  Resizer().resize(decoded(png_of(p), part), {8, 9}, a.data());
  Resizer().resize(decoded(png_of(cut)), {8, 9}, b.data());
  EXPECT_EQ(a, b);
}

TEST(Resizer, AScaledJpegLooksLikeTheWhole) {
  const Bytes file = jpeg_of(picture({160, 240}, 12));
  const ImageExtent to{30, 30};
  for (const Rectangle& part :
       {Rectangle{0, 0, 160, 240}, Rectangle{33, 47, 101, 122}, Rectangle{90, 150, 70, 90}}) {
    Bytes a(3 * 900), b(3 * 900);
    Resizer().resize(decoded(file, part), to, a.data());
    const Decoded scaled = decoded(file, part, to);
    EXPECT_LT(scaled.height, static_cast<double>(part.height));
    Resizer().resize(scaled, to, b.data());
    double mean = 0;
    for (int i = 0; i < 2700; ++i) {
      EXPECT_NEAR(a[i], b[i], 12);
      mean += std::abs(a[i] - b[i]) / 2700.0;
    }
    EXPECT_LT(mean, 1.5);
  }
}

TEST(Rectangles, TheCentreIsSevenEighths) {
  const auto text = [](const Rectangle& r) {
    return fmt::format("{}+{} {}+{}", r.top, r.height, r.left, r.width);
  };
  EXPECT_EQ(text(central_rectangle({256, 256}, {224, 224})), "16+224 16+224");
  EXPECT_EQ(text(central_rectangle({512, 768}, {224, 224})), "32+448 160+448");
  EXPECT_EQ(text(central_rectangle({80, 320}, {10, 20})), "5+70 90+140");
  EXPECT_EQ(text(central_rectangle({1, 1}, {224, 224})), "0+1 0+1");
}

TEST(Rectangles, RandomOnesCoverAreasAndAspectsEvenly) {
  const ImageExtent image{400, 500}, to{64, 64};
  constexpr int kCount = 4000;
  double area = 0, log_aspect = 0, top = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const Rectangle r = random_rectangle(image, to, 0.08, Random(3, "rectangles"), 64 * i);
    ASSERT_TRUE(r.top >= 0 && r.left >= 0 && r.top + r.height <= 400 && r.left + r.width <= 500);
    const double share = double(r.height * r.width) / 2e5, aspect = double(r.width) / double(r.height);
    ASSERT_GT(share, 0.075);
    ASSERT_TRUE(aspect > 0.74 && aspect < 1.35) << aspect;
    area += share / kCount, log_aspect += std::log(aspect) / kCount;
    top += r.height < 400 ? double(r.top) / double(400 - r.height) / kCount : 0.5 / kCount;
  }
  // The largest often do not fit, the widest more often do: from another implementation.
  EXPECT_NEAR(area, 0.453, 0.012);
  EXPECT_NEAR(log_aspect, 0.028, 0.009);
  EXPECT_NEAR(top, 0.5, 0.02);
}

TEST(Rectangles, WhatCannotFitIsTheCentre) {
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Rectangle r = random_rectangle({10, 1000}, {64, 64}, 0.9, Random(4, "rectangles"), 64 * i);
    EXPECT_EQ(r.height, 10);
    EXPECT_EQ(r.width, 13);
    EXPECT_EQ(r.left, 493);
  }
}

}  // namespace
}  // namespace ssn::test
