#include "datasets/encoded_images.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

namespace ssn {
namespace {

/// Draws for a sample's rectangle: at most 40, at indices that ImageTransform leaves alone.
std::uint64_t first_draw(std::int64_t sample) {
  return (std::uint64_t{1} << 40) + 64 * static_cast<std::uint64_t>(sample);
}

ImageTransform transform_of(const ImageSize& size, const Augmentation& augmentation,
                            const Normalization& normalization) {
  return {size.height, size.width, size.channels, augmentation, normalization};
}

}  // namespace

/// Reads images one after another, on one thread.
class EncodedSamples::Worker {
 public:
  /// `part`: what may take a bad image's place; empty: all.
  Worker(const EncodedSamples& set, std::span<const std::int32_t> part)
      : set_(set), part_(part), size_(set.options_.size), pixels_(size_.height * size_.width * 3) {}

  /// The image, or the one in its place, to `out`: u8 (h, w, c). `random`: of a training image.
  std::int32_t read(std::int32_t image, const Random* random, std::uint8_t* out) {
    const std::int64_t n = part_.empty() ? set_.size() : std::ssize(part_);
    std::int32_t at = image;
    for (std::int64_t tries = 0;; ++tries, at = next(at)) {
      try {
        read_one(at, random, out);
        return at;
      } catch (const BadImage& bad) {
        if (!set_.options_.skip_bad)
          throw BadImage(
              fmt::format("{}; fetch it again or remove it, or go on without it: --skip-bad", bad.what()),
              std::source_location::current());
        check(tries + 1 < std::min(n, kMostBad), "data",
              "{} and the {} images after it cannot be read: give the right directory, or fetch them again",
              set_.images_->place(image), tries);
        const std::scoped_lock lock(set_.mutex_);
        set_.replaced_.insert(at);
      }
    }
  }

 private:
  static constexpr std::int64_t kMostBad = 100;  // one after another: not a bad file, but a wrong directory

  /// After the last comes the first.
  std::int32_t next(std::int32_t image) const {
    if (part_.empty()) return static_cast<std::int32_t>((image + 1) % set_.size());
    const auto at = std::ranges::find(part_, image);
    return at == part_.end() || at + 1 == part_.end() ? part_.front() : at[1];
  }

  void read_one(std::int32_t image, const Random* random, std::uint8_t* out) {
    const ImageExtent to{size_.height, size_.width};
    const std::string place = set_.images_->place(image);
    set_.images_->read(image, file_);
    const ImageExtent extent = image_extent(file_, place);
    const Rectangle region = random ? random_rectangle(extent, to, set_.options_.augmentation.crop_area,
                                                       *random, first_draw(image))
                                    : central_rectangle(extent, to);
    decode(file_, place, region, to, decoded_);
    resizer_.resize(decoded_, to, size_.channels == 3 ? out : pixels_.data());
    if (size_.channels == 3) return;
    for (std::int64_t i = 0; i < size_.height * size_.width; ++i) {
      const std::uint8_t* p = pixels_.data() + 3 * i;
      out[i] = static_cast<std::uint8_t>((p[0] + p[1] + p[2] + 1) / 3);
    }
  }

  const EncodedSamples& set_;
  std::span<const std::int32_t> part_;
  ImageSize size_;
  std::vector<std::uint8_t> file_, pixels_;  // the latter: (h, w, 3)
  Decoded decoded_;
  Resizer resizer_;
};

EncodedSamples::EncodedSamples(std::shared_ptr<const EncodedImages> images, Options options)
    : images_(std::move(images)),
      options_(std::move(options)),
      training_(transform_of(options_.size, options_.augmentation, options_.normalization)),
      plain_(transform_of(options_.size, {}, options_.normalization)) {
  check(images_ && size() > 0, "data", "needs a set of one image at least");
}

/// use(worker, i) for i in [0, n), on several threads. What throws is thrown of the least i.
template <class Use>
void EncodedSamples::for_each(std::int64_t n, std::span<const std::int32_t> part, Use&& use) const {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::int64_t failed = n;
  std::exception_ptr error;
  const auto work = [&] {
    std::int64_t i = n;
    try {
      Worker worker(*this, part);
      while ((i = next++) < n) use(worker, i);
    } catch (...) {
      next = n;  // those before are in hand already
      const std::scoped_lock lock(mutex);
      if (!error || i < failed) failed = i, error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::int64_t t = 1; t < std::min(options_.threads, n); ++t) others.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

Batch EncodedSamples::raw_within(std::span<const std::int32_t> part, std::span<const std::int32_t> samples,
                                 const Random& random, bool training) const {
  const auto& [c, h, w] = options_.size;
  const std::int64_t n = std::ssize(samples), pixels = h * w * c;
  Batch batch{.images = Tensor::empty({n, h, w, c}, DType::u8),
              .samples = Tensor::empty({n}, DType::i32),
              .labels = Tensor::empty({n}, DType::i32)};
  auto* out = batch.images.data<std::uint8_t>();
  auto* read = batch.samples.data<std::int32_t>();
  for_each(n, part, [&](Worker& worker, std::int64_t i) {
    read[i] = worker.read(samples[i], training ? &random : nullptr, out + i * pixels);
    batch.labels.data<std::int32_t>()[i] = images_->label(read[i]);
  });
  return batch;
}

std::vector<std::int32_t> EncodedSamples::replaced() const {
  const std::scoped_lock lock(mutex_);
  return {replaced_.begin(), replaced_.end()};
}

Normalization EncodedSamples::estimate_normalization() const {
  constexpr std::int64_t kMost = 1000, kAtOnce = 50;
  const auto& [c, h, w] = options_.size;
  const std::int64_t pixels = h * w * c, count = std::min(kMost, size());
  ValueCounts values;
  for (std::int64_t first = 0; first < count; first += kAtOnce) {
    const std::int64_t n = std::min(kAtOnce, count - first);
    const Tensor images = Tensor::empty({n, h, w, c}, DType::u8);
    for_each(n, {}, [&](Worker& worker, std::int64_t i) {
      worker.read(static_cast<std::int32_t>((first + i) * size() / count), nullptr,
                  images.data<std::uint8_t>() + i * pixels);
    });
    values.add(images);
  }
  return values.normalization();
}

Dataset encoded_dataset(const std::string& name, const EncodedSets& sets, const DatasetOptions& options) {
  EncodedSamples::Options o{.size = {3, 224, 224},
                            .augmentation = {.flip = options.flip.value_or(true),
                                             .crop_padding = options.crop_padding.value_or(0),
                                             .cutout = options.cutout.value_or(0),
                                             .crop_area = options.crop_area},
                            .threads = options.threads,
                            .skip_bad = options.skip_bad};
  if (options.input) o.size = *options.input;
  if (options.facts) o.size = options.facts->input.size, o.normalization = options.facts->normalization;
  check_usage(o.size.channels == 1 || o.size.channels == 3, "--data",
              "{} has images of 3 channels, which cannot be turned into {}", name, o.size.channels);
  if (!options.facts) o.normalization = EncodedSamples(sets.train, o).estimate_normalization();
  return {.name = name,
          .train = std::make_shared<EncodedSamples>(sets.train, o),
          .test = std::make_shared<EncodedSamples>(sets.test, o),
          .facts = {.input = {o.size, std::ssize(sets.classes)}, .normalization = o.normalization},
          .augmentation = o.augmentation,
          .classes = sets.classes};
}

}  // namespace ssn
