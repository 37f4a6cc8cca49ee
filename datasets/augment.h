#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/random.h"
#include "runtime/tensor.h"

// What is done to images: once at loading (resizing), and each time one is used (augmentation,
// normalisation).
namespace ssn {

/// Random changes to a training image.
struct Augmentation {
  bool flip = false;              // mirror left to right, every second image
  std::int64_t crop_padding = 0;  // shift by up to this many pixels each way; what moves in is black (u8 0)
  std::int64_t cutout = 0;  // side of a square with its centre anywhere in the image, set to the mean colour
  double crop_area = 1;     // image files: a random rectangle of at least this share of the image's area
};

/// y = (x / 255 − mean) / std for each channel. Empty: y = x / 255.
struct Normalization {
  std::vector<float> mean, std;
};

/// How often each value occurs in each channel of u8 images (n, h, w, c): exact, whatever the order they come
/// in.
class ValueCounts {
 public:
  void add(const Tensor& images);
  /// Mean and standard deviation of each channel. A channel that never varies has std 1.
  Normalization normalization() const;

 private:
  std::vector<std::array<std::int64_t, 256>> counts_;  // by channel
};
Normalization normalization_of(const Tensor& images);

/// u8 (n, h, w, c) → (n, height, width, c): the average over blocks where height and width divide the image's
/// own, otherwise bilinear with half-pixel centres.
Tensor resize_images(const Tensor& images, std::int64_t height, std::int64_t width);

/// u8 (n, h, w, c) → (n, h, w, channels): one channel is repeated, several are averaged to one.
Tensor convert_channels(const Tensor& images, std::int64_t channels);

/// Turns u8 images into normalised, augmented f32 ones, on the CPU or on a GPU: the same bits.
class ImageTransform {
 public:
  ImageTransform(std::int64_t height, std::int64_t width, std::int64_t channels, Augmentation augmentation,
                 const Normalization& normalization);
  /// The same for images on `device`.
  ImageTransform to(Device device) const;
  /// u8 (n, h, w, c) → f32, both on its device, where it is queued. `samples`, i32 (n): the images' numbers
  /// in their set. What is drawn for one depends on `random` and its number alone, so it is changed in the
  /// same way whatever rank, part, thread or device handles it.
  Tensor apply(const Tensor& images, const Tensor& samples, const Random& random) const;

 private:
  std::int64_t height_, width_, channels_;
  Augmentation augmentation_;
  Tensor mean_, std_;  // of a row: (width, channels)
};

}  // namespace ssn
