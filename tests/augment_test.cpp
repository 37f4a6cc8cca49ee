// Resizing, normalisation and augmentation of single images.
#include "datasets/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "data_files.h"
#include "datasets/dataset.h"

namespace ssn::test {
namespace {

constexpr std::int64_t kH = 7, kW = 9, kC = 2, kPixels = kH * kW * kC;
const Normalization kNorm{{0.5f, 0.4f}, {0.25f, 0.3f}};

/// All bytes of a channel differ and none is 0, so that a pixel tells where it came from.
std::vector<std::uint8_t> distinct_image() {
  std::vector<std::uint8_t> image(kPixels);
  for (std::int64_t i = 0; i < kPixels; ++i) image[i] = static_cast<std::uint8_t>(1 + i * 2 % 251);
  return image;
}
float normalised(int byte, std::int64_t k) {
  return (static_cast<float>(byte) / 255.0f - kNorm.mean[k]) / kNorm.std[k];
}

std::vector<float> apply(const Augmentation& augmentation, std::int64_t sample, std::uint64_t seed = 3,
                         int epoch = 2) {
  const Random random(seed, Random::hash("augment") + static_cast<std::uint64_t>(epoch));
  const std::vector<std::int32_t> samples = {static_cast<std::int32_t>(sample)};
  const Tensor out = ImageTransform(kH, kW, kC, augmentation, kNorm)
                         .apply(Tensor::of<std::uint8_t>({1, kH, kW, kC}, distinct_image()),
                                Tensor::of<std::int32_t>({1}, samples), random);
  return {out.span<float>().begin(), out.span<float>().end()};
}

/// The image shifted, after it was flipped, with black moved in.
std::vector<float> moved(bool flip, std::int64_t dy, std::int64_t dx) {
  const auto image = distinct_image();
  std::vector<float> out;
  for (std::int64_t y = 0; y < kH; ++y)
    for (std::int64_t x = 0; x < kW; ++x)
      for (std::int64_t k = 0; k < kC; ++k) {
        const std::int64_t i = y + dy, j = x + dx;
        const bool inside = i >= 0 && i < kH && j >= 0 && j < kW;
        out.push_back(normalised(inside ? image[(i * kW + (flip ? kW - 1 - j : j)) * kC + k] : 0, k));
      }
  return out;
}

TEST(Augment, NormalisesOnlyWithoutAugmentation) {
  EXPECT_EQ(apply({}, 5), moved(false, 0, 0));
}

TEST(Augment, FlipsHalfOfTheImages) {
  int flipped = 0;
  for (int sample = 0; sample < 1000; ++sample) {
    const auto out = apply({.flip = true}, sample);
    const bool mirrored = out == moved(true, 0, 0);
    ASSERT_TRUE(mirrored || out == moved(false, 0, 0)) << sample;
    flipped += mirrored;
  }
  EXPECT_NEAR(flipped, 500, 80);
}

TEST(Augment, CropsAtEveryOffset) {
  std::map<std::pair<int, int>, int> seen;
  for (int sample = 0; sample < 2500; ++sample) {
    const auto out = apply({.crop_padding = 2}, sample);
    int matches = 0;
    for (int dy = -2; dy <= 2; ++dy)
      for (int dx = -2; dx <= 2; ++dx)
        if (out == moved(false, dy, dx)) ++matches, ++seen[{dy, dx}];
    ASSERT_EQ(matches, 1) << sample;
  }
  EXPECT_EQ(seen.size(), 25u);
  for (const auto& [offset, count] : seen)
    EXPECT_NEAR(count, 100, 50) << offset.first << ", " << offset.second;
}

/// Draws from an implementation of Philox in another language: sample 5 is not flipped, and moved by (3 − 2,
/// 0 − 2); sample 6 is flipped and moved by (4 − 2, 4 − 2). Their cutouts have the centres (0, 0) and (2, 0).
TEST(Augment, DrawsAsDocumented) {
  for (const bool cut : {false, true}) {
    const Augmentation augmentation{.flip = true, .crop_padding = 2, .cutout = cut ? 3 : 0};
    auto five = moved(false, 1, -2), six = moved(true, 2, 2);
    for (std::int64_t y = 0; cut && y < kH; ++y)
      for (std::int64_t i = 0; i < 2 * kC; ++i) {  // columns −1 to 1
        if (y <= 1) five[y * kW * kC + i] = 0;
        if (y >= 1 && y <= 3) six[y * kW * kC + i] = 0;
      }
    EXPECT_EQ(apply(augmentation, 5), five);
    EXPECT_EQ(apply(augmentation, 6), six);
  }
}

TEST(Augment, CutsOutASquareAnywhere) {
  std::set<std::pair<std::int64_t, std::int64_t>> corners;
  const auto plain = moved(false, 0, 0);
  for (int sample = 0; sample < 2000; ++sample) {
    const auto out = apply({.cutout = 4}, sample);
    std::int64_t top = kH, left = kW, bottom = -1, right = -1, zeros = 0;
    for (std::int64_t i = 0; i < kPixels; ++i) {
      if (out[i] == plain[i]) continue;
      ASSERT_EQ(out[i], 0.0f);
      const std::int64_t y = i / kC / kW, x = i / kC % kW;
      top = std::min(top, y), bottom = std::max(bottom, y), left = std::min(left, x),
      right = std::max(right, x);
      ++zeros;
    }
    const std::int64_t height = bottom - top + 1, width = right - left + 1;
    ASSERT_EQ(zeros, height * width * kC) << "a filled rectangle";
    ASSERT_TRUE(height == 4 || (height >= 2 && (top == 0 || bottom == kH - 1)));
    ASSERT_TRUE(width == 4 || (width >= 2 && (left == 0 || right == kW - 1)));
    corners.emplace(bottom, right);
  }
  EXPECT_EQ(corners.size(),
            static_cast<std::size_t>((kH - 1) * (kW - 1)));  // clipped centres share the last row and column
}

TEST(Augment, EpochsAndSeedsDiffer) {
  const Augmentation augmentation{.flip = true, .crop_padding = 2, .cutout = 3};
  const auto several = [&](std::uint64_t seed, int epoch) {
    std::vector<std::vector<float>> images;
    for (int sample = 0; sample < 8; ++sample) images.push_back(apply(augmentation, sample, seed, epoch));
    return images;
  };
  EXPECT_EQ(several(3, 2), several(3, 2));
  EXPECT_NE(several(3, 2), several(3, 3));
  EXPECT_NE(several(3, 2), several(4, 2));
}

TEST(Augment, RefusesWrongSettings) {
  expect_error([] { ImageTransform(8, 8, 3, {}, kNorm); },
               {"images of 3 channels cannot be normalised by 2 means"});
  expect_error([] { ImageTransform(8, 8, 1, {}, {{0.5f}, {0.0f}}); }, {"deviation 0"});
  expect_error([] { ImageTransform(8, 8, 1, {}, {{NAN}, {1.0f}}); }, {"mean nan"});
  expect_error([] { ImageTransform(8, 8, 1, {.crop_padding = -1}, {}); }, {"must not be negative"});
  expect_error([] { ImageTransform(1 << 15, 1 << 15, 3, {}, {}); }, {"more than 2^30 values"});
  const Tensor images = Tensor::zeros({2, 8, 8, 1}, DType::u8), samples = Tensor::zeros({3}, DType::i32);
  expect_error(
      [&] {
        ImageTransform(8, 8, 1, {}, {}).apply(images, samples, {0, 0});
      },
      {"expected 3 images 8x8x1 on cpu, found 2x8x8x1"});
}

Tensor bytes(const Shape& shape, const std::vector<std::uint8_t>& values) {
  return Tensor::of<std::uint8_t>(shape, values);
}
std::vector<int> values(const Tensor& t) {
  const auto span = t.span<std::uint8_t>();
  return {span.begin(), span.end()};
}

TEST(Normalization, IsExact) {
  const Normalization n = normalization_of(bytes({2, 1, 2, 2}, {0, 9, 51, 9, 102, 9, 255, 9}));
  EXPECT_FLOAT_EQ(n.mean[0], 0.4f);  // of 0, 0.2, 0.4, 1
  EXPECT_FLOAT_EQ(n.std[0], std::sqrt(0.14f));
  EXPECT_FLOAT_EQ(n.mean[1], 9 / 255.0f);
  EXPECT_EQ(n.std[1], 1.0f);  // never varies
}

TEST(Normalization, GivesMeanZeroAndVarianceOne) {
  const Dataset data = load_dataset("digits");
  const ImageSet& set = dynamic_cast<const ImageSamples&>(*data.train).set();
  const ImageTransform transform(8, 8, 1, {}, data.facts.normalization);
  double sum = 0, squares = 0;
  const Tensor samples = Tensor::zeros({set.size()}, DType::i32),
               out = transform.apply(set.images, samples, {0, 0});
  for (const float x : out.span<float>()) sum += x, squares += static_cast<double>(x) * x;
  const double count = 64.0 * static_cast<double>(data.train->size());
  EXPECT_NEAR(sum / count, 0, 1e-6);
  EXPECT_NEAR(squares / count, 1, 1e-6);
}

TEST(Resize, AveragesBlocks) {
  const Tensor in =
      bytes({1, 2, 6, 2}, {0, 1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 10, 1, 11, 1, 12, 1, 13, 1, 14, 1, 250, 1});
  EXPECT_EQ(values(resize_images(in, 1, 2)), (std::vector<int>{6, 1, 48, 1}));  // 36 / 6 and 289 / 6
  EXPECT_EQ(values(resize_images(in, 2, 2)), (std::vector<int>{1, 1, 4, 1, 11, 1, 92, 1}));
  EXPECT_EQ(values(resize_images(bytes({1, 1, 2, 1}, {1, 2}), 1, 1)), (std::vector<int>{2}));  // halves go up
  EXPECT_EQ(values(resize_images(in, 2, 6)), values(in));
}

TEST(Resize, InterpolatesWithHalfPixelCentres) {
  // 0 and 100 at the centres 0.25 and 0.75; four outputs at 0.125, 0.375, ...
  EXPECT_EQ(values(resize_images(bytes({1, 1, 2, 1}, {0, 100}), 1, 4)), (std::vector<int>{0, 25, 75, 100}));
  EXPECT_EQ(values(resize_images(bytes({2, 3, 1, 1}, {0, 60, 120, 9, 9, 9}), 2, 1)),
            (std::vector<int>{15, 105, 9, 9}));
  EXPECT_EQ(values(resize_images(bytes({1, 2, 2, 1}, {0, 100, 200, 40}), 3, 3)),
            (std::vector<int>{0, 50, 100, 100, 85, 70, 200, 120, 40}));
}

TEST(Resize, RefusesWhatIsNotImages) {
  expect_error([] { resize_images(Tensor::zeros({2, 3}, DType::u8), 1, 1); }, {"expected u8 images"});
  expect_error([] { resize_images(bytes({1, 1, 1, 1}, {1}), 0, 1); }, {"positive size, found 0x1"});
}

TEST(Channels, AreRepeatedOrAveraged) {
  EXPECT_EQ(values(convert_channels(bytes({1, 1, 2, 1}, {7, 9}), 3)), (std::vector<int>{7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(values(convert_channels(bytes({1, 1, 2, 3}, {1, 2, 4, 0, 0, 1}), 1)), (std::vector<int>{2, 0}));
  expect_error(
      [] {
        convert_channels(bytes({1, 1, 1, 3}, {1, 2, 3}), 2);
      },
      {"3 channels cannot be turned into 2"});
}

}  // namespace
}  // namespace ssn::test
