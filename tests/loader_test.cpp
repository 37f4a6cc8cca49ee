// Order, parts, prefetching and resuming.
#include "datasets/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <set>

#include "data_files.h"
#include "datasets/image_set.h"
#include "runtime/parallel.h"

namespace ssn::test {
namespace {

/// n images of 5 x 4 x 2 with random bytes; image i has the label i.
ImageSet numbered(std::int64_t n) {
  const ImageSet set{.images = Tensor::empty({n, 5, 4, 2}, DType::u8),
                     .labels = Tensor::empty({n}, DType::i32)};
  const Random random(9, "numbered");
  for (std::int64_t i = 0; i < n; ++i) set.labels.span<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  for (std::int64_t i = 0; i < set.images.size(); ++i)
    set.images.span<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.bits(i));
  return set;
}

const Normalization kNormalization{{0.5f, 0.4f}, {0.25f, 0.3f}};

Samples samples(ImageSet set) {
  return std::make_shared<ImageSamples>(
      std::move(set), Augmentation{.flip = true, .crop_padding = 1, .cutout = 2}, kNormalization);
}
Samples numbered_samples(std::int64_t n) {
  return samples(numbered(n));
}

LoaderOptions training(std::int64_t batch, std::uint64_t seed = 1) {
  return {.batch = batch, .seed = seed};
}
LoaderOptions evaluation(std::int64_t batch) {
  return {.batch = batch, .training = false};
}

std::vector<std::int32_t> labels_of(const Batch& batch) {
  const auto span = batch.labels.span<std::int32_t>();
  return {span.begin(), span.end()};
}
std::vector<float> pixels_of(const Batch& batch) {
  const auto span = batch.images.span<float>();
  return {span.begin(), span.end()};
}
void expect_same(const Batch& a, const Batch& b) {
  EXPECT_EQ(std::tuple(a.epoch, a.step, a.part, a.global_size),
            std::tuple(b.epoch, b.step, b.part, b.global_size));
  EXPECT_EQ(labels_of(a), labels_of(b));
  EXPECT_EQ(pixels_of(a), pixels_of(b));
}

/// From an implementation of the documented order in another language.
TEST(Loader, ShufflesAsDocumented) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    return *Loader(numbered_samples(11), training(4, seed)).order(epoch);
  };
  EXPECT_EQ(order(1, 0), (std::vector<std::int32_t>{3, 7, 9, 6, 10, 5, 4, 2, 1, 8, 0}));
  EXPECT_EQ(order(1, 1), (std::vector<std::int32_t>{2, 8, 6, 7, 3, 10, 9, 5, 1, 4, 0}));
  EXPECT_EQ(order(2, 0), (std::vector<std::int32_t>{8, 2, 1, 4, 3, 0, 6, 10, 7, 5, 9}));
}

TEST(Loader, PermutesUniformly) {
  const Loader loader(numbered_samples(4), training(4));
  std::map<std::vector<std::int32_t>, int> counts;
  for (int epoch = 0; epoch < 2400; ++epoch) ++counts[*loader.order(epoch)];
  EXPECT_EQ(counts.size(), 24u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 100, 50) << "five standard deviations";
}

TEST(Loader, TrainsOnFullBatchesInTheOrderOfTheEpoch) {
  const Loader loader(numbered_samples(23), training(5));
  EXPECT_EQ(loader.steps_per_epoch(), 4);
  for (const std::int64_t epoch : {0, 3, 0}) {
    std::vector<std::int32_t> seen;
    for (std::int64_t step = 0; step < 4; ++step) {
      EXPECT_EQ(loader.batch_size(step), 5);
      for (const std::int32_t label : labels_of(loader.batch(epoch, step))) seen.push_back(label);
    }
    const auto order = loader.order(epoch);
    EXPECT_EQ(seen, std::vector<std::int32_t>(order->begin(), order->begin() + 20));
  }
}

TEST(Loader, ASetSmallerThanABatchIsOneBatch) {
  const Loader loader(numbered_samples(3), training(64));
  EXPECT_EQ(loader.steps_per_epoch(), 1);
  EXPECT_EQ(loader.batch(0, 0).size(), 3);
}

TEST(Loader, EvaluatesEverySampleOnceAndPlain) {
  const ImageSet set = numbered(23);
  const Loader loader(samples(set), evaluation(5));
  EXPECT_EQ(loader.steps_per_epoch(), 5);
  EXPECT_EQ(loader.batch_size(4), 3);
  std::int32_t next = 0;
  for (std::int64_t step = 0; step < 5; ++step) {
    const Batch batch = loader.batch(0, step);
    const std::vector<float> pixels = pixels_of(batch);
    for (std::int64_t i = 0; i < batch.size(); ++i, ++next) {
      EXPECT_EQ(labels_of(batch)[i], next);
      for (int p = 0; p < 40; ++p) {
        const float byte = set.images.span<std::uint8_t>()[next * 40 + p];
        ASSERT_EQ(pixels[i * 40 + p],
                  (byte / 255.0f - kNormalization.mean[p % 2]) / kNormalization.std[p % 2]);
      }
    }
  }
  EXPECT_EQ(next, 23);
}

TEST(Loader, PartsPutTogetherAreTheBatch) {
  for (const bool train : {true, false}) {
    const Loader loader(numbered_samples(47), train ? training(13) : evaluation(13));
    for (const std::int64_t parts : {1, 2, 3, 4, 13, 17})
      for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
        const Batch whole = loader.batch(2, step);
        std::vector<std::int32_t> labels;
        std::vector<float> pixels;
        for (std::int64_t part = 0; part < parts; ++part) {
          const Batch piece = loader.batch(2, step, part, parts);
          EXPECT_EQ(piece.size(), whole.size() / parts + (part < whole.size() % parts ? 1 : 0));
          EXPECT_EQ(piece.images.shape(), (Shape{piece.size(), 5, 4, 2}));
          EXPECT_EQ(piece.global_size, whole.size());
          for (const std::int32_t label : labels_of(piece)) labels.push_back(label);
          for (const float pixel : pixels_of(piece)) pixels.push_back(pixel);
        }
        EXPECT_EQ(labels, labels_of(whole));
        EXPECT_EQ(pixels, pixels_of(whole));
      }
  }
}

TEST(Loader, GivesTheSameBatchOnAnyThread) {
  const Loader loader(numbered_samples(47), training(13));
  std::vector<Batch> expected;
  for (std::int64_t i = 0; i < 12; ++i)
    expected.push_back(Loader(numbered_samples(47), training(13)).batch(i / 3, i % 3));
  const int threads = num_threads();
  set_num_threads(5);
  std::vector<Batch> found(12);
  {
    std::vector<std::jthread> workers;
    for (int w = 0; w < 4; ++w)
      workers.emplace_back([&, w] {
        for (std::int64_t i = w; i < 12; i += 4) found[i] = loader.batch(i / 3, i % 3);
      });
  }
  set_num_threads(threads);
  for (int i = 0; i < 12; ++i) expect_same(found[i], expected[i]);
}

/// The pixels of each sample of an epoch, by label.
std::map<std::int32_t, std::vector<float>> augmented(const LoaderOptions& options, std::int64_t epoch) {
  const Loader loader(numbered_samples(40), options);
  std::map<std::int32_t, std::vector<float>> images;
  for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.batch(epoch, step);
    const std::vector<float> pixels = pixels_of(batch);
    for (int i = 0; i < batch.size(); ++i)
      images[labels_of(batch)[i]] =
          std::vector<float>(pixels.begin() + i * 40, pixels.begin() + (i + 1) * 40);
  }
  return images;
}

TEST(Loader, AugmentsASampleByEpochAndIndexAlone) {
  const auto images = augmented(training(4), 5);
  EXPECT_EQ(images.size(), 40u);
  EXPECT_EQ(augmented(training(10), 5), images);
  const auto next = augmented(training(4), 6);
  int same = 0;
  for (const auto& [label, pixels] : images) same += next.at(label) == pixels;
  EXPECT_LT(same, 10);
}

TEST(Loader, RefusesWhatIsNotASet) {
  ImageSet set = numbered(7);
  const Loader loader(samples(set), training(3));
  expect_error([&] { loader.batch(0, 2); }, {"step 2 is out of range; an epoch has 2"});
  expect_error([&] { loader.batch(0, 0, 2, 2); }, {"part 2 of 2"});
  expect_error<UsageError>([&] { Loader(samples(set), training(0)); }, {"one sample at least, found 0"});
  expect_error([&] { Loader({}, training(3)); }, {"needs a set"});
  expect_error([&] { samples({}); }, {"expected u8 images"});
  set.labels = Tensor::zeros({6}, DType::i32);
  expect_error([&] { samples(set); }, {"expected 7 labels"});
}

std::vector<Batch> take(Prefetcher& prefetcher, int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(prefetcher.next().value());
  return batches;
}

TEST(Prefetcher, GoesThroughStepsAndEpochs) {
  const Loader loader(numbered_samples(23), training(5));
  Prefetcher prefetcher(loader, {});
  for (std::int64_t i = 0; i < 11; ++i) expect_same(*prefetcher.next(), loader.batch(i / 4, i % 4));
}

TEST(Prefetcher, ResumingAnywhereEqualsContinuing) {
  const Loader loader(numbered_samples(23), training(5));
  Prefetcher whole(loader, {.end_epoch = 3});
  const std::vector<Batch> expected = take(whole, 12);
  EXPECT_FALSE(whole.next().has_value());
  EXPECT_FALSE(whole.next().has_value());
  for (std::int64_t start = 0; start <= 12;
       ++start)  // also as "step 4 of epoch 0", which a checkpoint may say
    for (const std::int64_t epoch : {start / 4, (start + 3) / 4 - 1}) {
      if (epoch < 0) continue;
      const Loader fresh(numbered_samples(23), training(5));
      Prefetcher rest(fresh, {.epoch = epoch, .step = start - 4 * epoch, .end_epoch = 3});
      for (std::int64_t i = start; i < 12; ++i) expect_same(rest.next().value(), expected[i]);
      EXPECT_FALSE(rest.next().has_value());
    }
}

TEST(Prefetcher, GivesARanksMicroBatches) {
  const Loader loader(numbered_samples(23), training(7));
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    Prefetcher prefetcher(loader, {.first_part = 2 * rank, .part_count = 2, .parts = 6, .depth = 3});
    for (std::int64_t i = 0; i < 14; ++i)
      expect_same(*prefetcher.next(), loader.batch(i / 6, i / 2 % 3, 2 * rank + i % 2, 6));
  }
}

TEST(Prefetcher, PreparesNoMoreThanItsDepth) {
  std::atomic<int> made = 0;
  Prefetcher prefetcher([&](std::int64_t, std::int64_t, std::int64_t) { return ++made, Batch{}; }, 100,
                        {.depth = 3});
  for (int taken = 1; taken <= 5; ++taken) {
    prefetcher.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LE(made, taken + 4);  // 3 that wait, and one in hand
    EXPECT_GE(made, taken);
  }
}

TEST(Prefetcher, CarriesErrorsOverInTheirPlace) {
  const auto make = [](std::int64_t epoch, std::int64_t step, std::int64_t) {
    check(epoch * 3 + step < 4, "make", "no more at epoch {}, step {}", epoch, step);
    return Batch{.epoch = epoch, .step = step};
  };
  Prefetcher prefetcher(make, 3, {});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(prefetcher.next()->step, i % 3);
  for (int again = 0; again < 2; ++again)
    expect_error([&] { prefetcher.next(); }, {"no more at epoch 1, step 1"});
}

TEST(Prefetcher, StopsWhereverItIs) {
  const Loader loader(numbered_samples(23), training(5));
  for (int taken = 0; taken < 20; ++taken) {
    Prefetcher prefetcher(loader, {});
    take(prefetcher, taken);
  }
  const Prefetcher finished(loader, {.end_epoch = 0});
}

TEST(Prefetcher, RefusesAWrongStart) {
  const Loader loader(numbered_samples(23), training(5));
  expect_error([&] { Prefetcher(loader, {.step = 5}); }, {"step 5; an epoch has 4 steps"});
  expect_error([&] { Prefetcher(loader, {.first_part = 1, .part_count = 2, .parts = 2}); },
               {"parts 1 to 2 of 2"});
}

}  // namespace
}  // namespace ssn::test
