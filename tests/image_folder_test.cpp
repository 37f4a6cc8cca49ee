// Folders of images and their packed form.
#include "datasets/image_folder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "datasets/loader.h"
#include "image_files.h"

namespace ssn::test {
namespace {

namespace fs = std::filesystem;

std::vector<float> pixels_of(const Batch& batch) {
  const auto span = batch.images.span<float>();
  return {span.begin(), span.end()};
}
std::vector<std::int32_t> labels_of(const Batch& batch) {
  const auto span = batch.labels.span<std::int32_t>();
  return {span.begin(), span.end()};
}
Batch tested(const SampleSet& set) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(set.size()));
  std::iota(all.begin(), all.end(), 0);
  return set.make(all, Random(0, "unused"), false);
}

const DatasetOptions kSmall{.input = ImageSize{3, 16, 16}};
Dataset load(const std::string& directory, DatasetOptions options = kSmall) {
  return load_dataset("folder:" + directory, options);
}

TEST(ImageFolder, ReadsClassesInOrderAndPixelsExactly) {
  const TempDir dir;
  for (const char* part : {"train", "test"})
    for (const char* name : {"ant", "bee", ".hidden"})
      fs::create_directories(fmt::format("{}/{}/{}", dir.path(), part, name));
  const auto write = [&](const std::string& name, std::uint64_t seed) {
    write_plain(dir / name, png_of(picture({8, 8}, seed)));
  };
  write("train/bee/a.png", 1), write("train/ant/z.PNG", 2),
      write("train/ant/b.JPEG", 3);  // a PNG all the same
  write("test/bee/1.jpg", 4);
  write_plain(dir / "train/ant/notes.txt", {'x'}), write_plain(dir / "train/ant/.b.png", {'x'});
  const Dataset data = load(dir.path(), {.input = ImageSize{3, 7, 7}});
  EXPECT_EQ(data.facts.input.text(), "3x7x7 images of 2 classes");
  EXPECT_EQ(data.name, "folder");
  EXPECT_TRUE(data.augmentation.flip);
  EXPECT_EQ(known_set("folder:" + dir.path())->input.text(), "3x224x224 images of 2 classes");
  EXPECT_EQ(known_set("folder:" + dir.path())->samples, 3);
  EXPECT_EQ(known_set("folder:/no/such/place")->input.text(), "3x224x224 images of 0 classes");
  const Batch train = tested(*data.train);
  EXPECT_EQ(labels_of(train), (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(labels_of(tested(*data.test)), std::vector<std::int32_t>{1});
  const auto& [mean, std] = data.facts.normalization;
  const std::vector<float> pixels = pixels_of(train);
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    const Picture p = picture({8, 8}, i == 0 ? 3 : i == 1 ? 2 : 1);
    for (int y = 0; y < 7; ++y)
      for (int x = 0; x < 7; ++x)
        for (int k = 0; k < 3; ++k) {
          const float value = pixels[((i * 7 + y) * 7 + x) * 3 + k];
          ASSERT_EQ(value, (static_cast<float>(p.at(y, x)[k]) / 255.0f - mean[k]) / std[k]);
          sum += value;
        }
  }
  EXPECT_NEAR(sum, 0, 1e-3) << "normalised by what all three have together";
}

TEST(ImageFolder, GreyInputAveragesColours) {
  const TempDir dir;
  write_image_folder(dir.path(), 2, 3, 1);
  const DataFacts plain{.input = {{3, 9, 9}, 2}, .normalization = {{0, 0, 0}, {1, 1, 1}}};
  const DataFacts grey{.input = {{1, 9, 9}, 2}, .normalization = {{0}, {1}}};
  const std::vector<float> colour = pixels_of(tested(*load(dir.path(), {.facts = plain}).train));
  const std::vector<float> one = pixels_of(tested(*load(dir.path(), {.facts = grey}).train));
  ASSERT_EQ(one.size() * 3, colour.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    ASSERT_NEAR(one[i], (colour[3 * i] + colour[3 * i + 1] + colour[3 * i + 2]) / 3, 0.5 / 255);
  expect_error<UsageError>(
      [&] {
        load(dir.path(), {.input = ImageSize{2, 9, 9}});
      },
      {"cannot be turned into 2"});
}

/// A training batch in pieces, on other threads, from another reading: the same bits.
TEST(ImageFolder, ASampleIsChangedByEpochAndIndexAlone) {
  const TempDir dir;
  write_image_folder(dir.path(), 3, 9, 2);
  const LoaderOptions training{.batch = 10, .seed = 4};
  const Loader loader(load(dir.path()).train, training);
  DatasetOptions threads = kSmall;
  threads.threads = 3;
  const Loader other(load(dir.path(), threads).train, training);
  std::vector<float> first;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (std::int64_t step = 0; step < 2; ++step) {
      const Batch whole = loader.batch(epoch, step);
      EXPECT_EQ(pixels_of(other.batch(epoch, step)), pixels_of(whole));
      for (const std::int64_t parts : {2, 3}) {
        std::vector<float> pixels;
        for (std::int64_t part = 0; part < parts; ++part)
          for (const float value : pixels_of(other.batch(epoch, step, part, parts))) pixels.push_back(value);
        EXPECT_EQ(pixels, pixels_of(whole));
      }
      if (epoch + step == 0) first = pixels_of(whole);
      EXPECT_EQ(pixels_of(whole) == first, epoch + step == 0);
    }
}

TEST(ImageFolder, AugmentationCanBeTurnedOff) {
  const TempDir dir;
  fs::create_directories(dir / "train/a"), fs::create_directories(dir / "val/a");
  const Picture p = picture({16, 16}, 5);
  for (const char* name : {"train/a/1.png", "val/a/1.png"}) write_plain(dir / name, png_of(p));
  DatasetOptions options = kSmall;
  options.flip = false, options.crop_area = 1;  // of a square the whole fits at aspect 1 alone: now and then
  const Dataset data = load(dir.path(), options);
  EXPECT_EQ(data.augmentation.crop_area, 1);
  std::set<std::vector<float>> plain, mirrored;
  for (std::uint64_t epoch = 0; epoch < 12; ++epoch)
    plain.insert(pixels_of(data.train->make(std::vector<std::int32_t>{0}, Random(1, epoch), true)));
  EXPECT_LE(plain.size(), 12u);
  options.flip = true;
  const Dataset flipped = load(dir.path(), options);
  for (std::uint64_t epoch = 0; epoch < 12; ++epoch)
    mirrored.insert(pixels_of(flipped.train->make(std::vector<std::int32_t>{0}, Random(1, epoch), true)));
  int same = 0;
  for (const auto& pixels : mirrored) same += static_cast<int>(plain.count(pixels));
  EXPECT_GT(same, 0);
  EXPECT_LT(same, std::ssize(mirrored));
}

TEST(ImageFolder, NamesWhatIsMissing) {
  const TempDir dir;
  const auto read = [&] { load(dir.path()); };
  expect_error([] { load("/no/such/place"); },
               {"/no/such/place: there is no such directory; expected train/CLASS"});
  expect_error<UsageError>([] { load_dataset("folder"); }, {"folder:DIR"});
  expect_error(read, {dir / "train", "there is no such directory"});
  fs::create_directories(dir / "train");
  expect_error(read, {"expected val or test in it, found neither"});
  fs::create_directories(dir / "val");
  expect_error(read, {dir / "train", "expected a directory for each class, found none"});
  fs::create_directories(dir / "train/ant");
  write_plain(dir / "train/ant/x.bmp", {'x'});
  expect_error(read, {dir / "train/ant", "has no images; expected files that end in .jpg, .jpeg or .png"});
  write_plain(dir / "train/ant/x.png", png_of(picture({8, 8}, 1)));
  expect_error(read, {dir / "val", "has no images"});
  fs::create_directories(dir / "val/bee");
  write_plain(dir / "val/bee/x.png", png_of(picture({8, 8}, 1)));
  expect_error(read, {dir / "val/bee", "no training images are of this class"});
}

/// The second of four is damaged, the last of the test images empty.
void write_damaged(const TempDir& dir) {
  write_image_folder(dir.path(), 2, 2, 2);
  const Bytes whole = read_plain(dir / "train/class-0/image-01.jpg");
  write_plain(dir / "train/class-0/image-01.jpg", Bytes(whole.begin(), whole.end() - 40));
  write_plain(dir / "val/class-1/image-01.jpg", {});
}

TEST(ImageFolder, ABadImageIsNamed) {
  const TempDir dir;
  write_damaged(dir);
  expect_error<BadImage>([&] { load(dir.path()); }, {dir / "train/class-0/image-01.jpg", "cut off"});
  DatasetOptions options{.threads = 3, .facts = DataFacts{.input = {{3, 16, 16}, 2}, .normalization = {}}};
  const Dataset data = load(dir.path(), options);
  expect_error<BadImage>([&] { tested(*data.train); }, {"image-01.jpg", "cut off"});
  expect_error<BadImage>([&] { tested(*data.test); }, {dir / "val/class-1/image-01.jpg", "is empty"});
  fs::remove(dir / "train/class-0/image-00.jpg");
  expect_error([&] { tested(*data.train); }, {"image-00.jpg: cannot be read: No such file"});
}

TEST(ImageFolder, TheNextGoodImageTakesABadOnesPlace) {
  const TempDir dir;
  write_damaged(dir);
  DatasetOptions options = kSmall;
  options.skip_bad = true;
  const Dataset data = load(dir.path(), options);
  const Batch train = tested(*data.train), test = tested(*data.test);
  EXPECT_EQ(labels_of(train), (std::vector<std::int32_t>{0, 1, 1, 1}));
  EXPECT_EQ(labels_of(test), (std::vector<std::int32_t>{0, 0, 1, 0})) << "after the last comes the first";
  const std::vector<float> pixels = pixels_of(train);
  const std::size_t image = pixels.size() / 4;
  EXPECT_TRUE(std::equal(pixels.begin() + image, pixels.begin() + 2 * image, pixels.begin() + 2 * image));
  EXPECT_EQ(data.train->replaced(), std::vector<std::int32_t>{1});
  EXPECT_EQ(data.test->replaced(), std::vector<std::int32_t>{3});
  const std::vector<std::int32_t> both = {2, 1};
  const std::vector<float> changed = pixels_of(data.train->make(both, Random(7, "augment"), true));
  EXPECT_TRUE(std::equal(changed.begin(), changed.begin() + image, changed.begin() + image));
  for (const char* name : {"class-0/image-00", "class-1/image-00", "class-1/image-01"})
    write_plain(dir / (fmt::format("train/{}.jpg", name)), {'x'});
  expect_error([&] { tested(*data.train); }, {"image-00.jpg and the 3 images after it cannot be read"});
}

}  // namespace
}  // namespace ssn::test
