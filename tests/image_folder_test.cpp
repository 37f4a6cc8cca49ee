// Folders of images and their packed form.
#include "datasets/image_folder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "datasets/image_pack.h"
#include "datasets/loader.h"
#include "image_files.h"
#include "tests/close.h"
#include "tests/training_run.h"

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
  fs::remove_all(dir / "val/bee");
  fs::create_directories(dir / "val/ant");
  write_plain(dir / "val/ant/x.png", png_of(picture({8, 8}, 1)));
  fs::create_symlink("loop", dir / "train/loop");
  EXPECT_NO_THROW(read());
  fs::create_symlink("y.png", dir / "train/ant/y.png");
  expect_error(read, {dir / "train/ant/y.png: cannot be read: Too many levels of symbolic links"});
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
  expect_error<BadImage>([&] { tested(*data.test); },
                         {dir / "val/class-1/image-01.jpg", "is empty", "--skip-bad"});
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

TEST(ImageFolder, ABadImagesPlaceIsTakenWithinItsPart) {
  const TempDir dir;
  write_damaged(dir);  // the second of four
  DatasetOptions options = kSmall;
  options.skip_bad = true;
  const Dataset data = load(dir.path(), options);
  EXPECT_EQ(labels_of(tested(*subset(data.train, {0, 1}))), (std::vector<std::int32_t>{0, 0}));
  const Samples part = subset(data.train, {3, 1, 0});
  EXPECT_EQ(labels_of(tested(*part)), (std::vector<std::int32_t>{1, 0, 0}));
  EXPECT_EQ(labels_of(tested(*subset(part, {0, 1}))), (std::vector<std::int32_t>{1, 1}));
  EXPECT_EQ(data.train->replaced(), std::vector<std::int32_t>{1});
}

/// What is packed of a folder, by the command.
std::string packed(const std::string& folder, const TempDir& dir, const Arguments& more = {}) {
  Arguments all = {"--data", "folder:" + folder, "--out", dir / "packed", "--quiet"};
  all.insert(all.end(), more.begin(), more.end());
  SoloComm comm;
  testing::internal::CaptureStdout();
  std::string text;
  try {
    pack(comm, all);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}
Dataset load_packed(const TempDir& dir, DatasetOptions options = kSmall) {
  return load_dataset("packed:" + (dir / "packed"), options);
}

void expect_same(const SampleSet& a, const SampleSet& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(labels_of(tested(a)), labels_of(tested(b)));
  EXPECT_EQ(pixels_of(tested(a)), pixels_of(tested(b)));
  const std::vector<std::int32_t> some = {3, 0, 5};
  const Random random(8, "augment");
  EXPECT_EQ(pixels_of(a.make(some, random, true)), pixels_of(b.make(some, random, true)));
}

TEST(ImagePack, GivesTheBitsOfTheFolder) {
  const TempDir dir;
  write_image_folder(dir / "folder", 3, 7, 2);
  const Dataset folder = load(dir / "folder");
  for (const char* shards : {"1", "4", "100"}) {
    const auto result =
        nlohmann::json::parse(packed(dir / "folder", dir, {"--shards", shards, "--json", "--overwrite"}));
    EXPECT_EQ(result["train_images"], 21);
    EXPECT_EQ(result["test_images"], 6);
    EXPECT_EQ(result["files"], shards == std::string("1") ? 2 : shards == std::string("4") ? 8 : 27);
    EXPECT_EQ(result["resized"], 0);
    const Dataset data = load_packed(dir);
    EXPECT_EQ(data.facts.input, folder.facts.input);
    EXPECT_EQ(data.facts.normalization.mean, folder.facts.normalization.mean);
    expect_same(*data.train, *folder.train);
    expect_same(*data.test, *folder.test);
    EXPECT_EQ(known_set("packed:" + (dir / "packed"))->samples, 21);
  }
  const EncodedSets sets = open_image_pack(dir / "packed");
  EXPECT_EQ(sets.classes, (std::vector<std::string>{"class-0", "class-1", "class-2"}));
  EXPECT_EQ(sets.train->name(10), "image-03.png");
  EXPECT_EQ(sets.train->name(0), "image-00.jpg");
}

TEST(ImagePack, MakesImagesSmaller) {
  const TempDir dir;
  for (const char* part : {"train", "val"}) {
    fs::create_directories(fmt::format("{}/folder/{}/a", dir.path(), part));
    for (const int size : {30, 60})  // the shorter side
      write_plain(fmt::format("{}/folder/{}/a/{}.jpg", dir.path(), part, size),
                  jpeg_of(picture({size, 2 * size}, 3)));
  }
  const auto result = nlohmann::json::parse(packed(dir / "folder", dir, {"--size", "40", "--json"}));
  EXPECT_EQ(result["resized"], 2);
  const EncodedSets sets = open_image_pack(dir / "packed");
  Bytes file;
  sets.train->read(0, file);
  EXPECT_EQ(file, read_plain(dir / "folder/train/a/30.jpg"));
  sets.train->read(1, file);
  EXPECT_EQ(image_extent(file, "x").height, 40);
  EXPECT_EQ(image_extent(file, "x").width, 80);
  const DataFacts plain{.input = {{3, 16, 16}, 1}, .normalization = {}};
  const std::vector<float> a = pixels_of(tested(*load_packed(dir, {.facts = plain}).train));
  const std::vector<float> b = pixels_of(tested(*load(dir / "folder", {.facts = plain}).train));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.06);
}

TEST(ImagePack, LeavesOutDamagedImages) {
  const TempDir dir;
  write_image_folder(dir / "folder", 2, 3, 2);
  write_plain(dir / "folder/train/class-0/image-01.jpg", {'x'});
  EXPECT_NO_THROW(packed(dir / "folder", dir)) << "nothing is decoded";
  const DatasetOptions options{.facts = DataFacts{.input = {{3, 16, 16}, 2}, .normalization = {}}};
  expect_error<BadImage>([&] { tested(*load_packed(dir, options).train); },
                         {"packed/train-0001-of-0001.h5, image 1: is neither a JPEG nor a PNG"});
  expect_error<BadImage>(
      [&] {
        packed(dir / "folder", dir, {"--size", "9", "--overwrite"});
      },
      {"image-01.jpg", "--skip-bad"});
  const auto result = nlohmann::json::parse(
      packed(dir / "folder", dir, {"--skip-bad", "--shards", "3", "--overwrite", "--json"}));
  EXPECT_EQ(result["left_out"], 1);
  EXPECT_EQ(result["train_images"], 5);
  EXPECT_EQ(labels_of(tested(*load_packed(dir).train)), (std::vector<std::int32_t>{0, 0, 1, 1, 1}));
}

TEST(ImagePack, NamesWhatIsWrong) {
  const TempDir dir;
  write_image_folder(dir / "folder", 2, 3, 2);
  const auto read = [&] { load_packed(dir); };
  expect_error(read, {dir / "packed", "there is no such directory"});
  packed(dir / "folder", dir, {"--shards", "2"});
  expect_error<UsageError>([&] { packed(dir / "folder", dir); },
                           {"holds packed images already", "--overwrite"});
  expect_error<UsageError>(
      [&] {
        packed("x", dir, {"--data", "digits"});
      },
      {"expected folder:DIR or packed:DIR"});
  const std::string first = dir / "packed/train-0001-of-0002.h5";
  const Bytes good = read_plain(first);
  fs::rename(first, dir / "elsewhere");
  expect_error(read, {first, "is missing"});
  write_plain(first, Bytes(good.begin(), good.begin() + good.size() / 2));
  expect_error(read, {first, "cannot open it"});
  {
    Hdf5File other = Hdf5File::create(first);
    other.close();
  }
  expect_error(read, {first, "not one that ssn pack wrote"});
  Bytes damaged = good;
  EncodedSets sets = open_image_folder(dir / "folder");
  Bytes image;
  sets.train->read(1, image);
  const auto at = std::search(damaged.begin(), damaged.end(), image.begin(), image.end());
  ASSERT_NE(at, damaged.end()) << "images lie in the file as they are";
  at[100] ^= 1;
  write_plain(first, damaged);
  expect_error<BadImage>(read, {"train-0001-of-0002.h5, image 1: its checksum is wrong"});
  DatasetOptions skip = kSmall;
  skip.skip_bad = true;
  const Dataset data = load_packed(dir, skip);
  tested(*data.train);
  EXPECT_EQ(data.train->replaced(), std::vector<std::int32_t>{1});
  write_plain(first, good);
  write_plain(dir / "packed/train-0001-of-0003.h5", good);
  expect_error(read, {"files of two packings"});
  fs::remove(dir / "packed/train-0001-of-0003.h5");
  fs::remove(first);  // which is open still
  fs::copy_file(dir / "packed/train-0002-of-0002.h5", first);
  expect_error(read, {first, "was written under another name"});
  write_plain(first, good);
  expect_error<UsageError>(
      [&] {
        packed("x", dir, {"--data", "packed:" + (dir / "packed"), "--overwrite"});
      },
      {"cannot be packed into itself"});
  fs::rename(dir / "folder/train/class-1", dir / "folder/train/class\n1");
  fs::rename(dir / "folder/val/class-1", dir / "folder/val/class\n1");
  expect_error<UsageError>([&] { packed(dir / "folder", dir, {"--overwrite"}); }, {"has a line break"});
}

/// The last bits of a training of a few steps, from the files and from the packed form.
TEST(ImagePack, TrainsToTheSameBits) {
  const TempDir dir;
  write_image_folder(dir / "folder", 3, 7, 3);
  packed(dir / "folder", dir, {"--shards", "3"});
  const auto parameters = [&](const std::string& data, const std::string& out, const Arguments& more = {}) {
    Arguments all = {"--data",  data,      "--input", "3x12x12",  "--out",
                     dir / out, "--batch", "8",       "--epochs", "2"};
    all.insert(all.end(), more.begin(), more.end());
    SoloComm comm;
    testing::internal::CaptureStdout();
    train(comm, small_run(all));
    testing::internal::GetCapturedStdout();
    return load_checkpoint(dir / (out + "/checkpoint.h5")).tensors;
  };
  const auto a = parameters("folder:" + (dir / "folder"), "a");
  const auto b = parameters("packed:" + (dir / "packed"), "b", {"--data-threads", "3"});
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(same_bits(tensor, b.at(name))) << name;
  const auto c = parameters("folder:" + (dir / "folder"), "c", {"--crop-area", "0.9"});
  int same = 0;
  for (const auto& [name, tensor] : a) same += static_cast<int>(same_bits(tensor, c.at(name)));
  EXPECT_LT(same, std::ssize(a) / 2) << "the images matter";
  SoloComm comm;
  testing::internal::CaptureStdout();
  EXPECT_EQ(
      eval(comm, {dir / "a/checkpoint.h5", "--data", "packed:" + (dir / "packed"), "--quiet", "--json"}), 0);
  const auto result = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(result["samples"], 9);
  EXPECT_EQ(result["replaced_samples"], 0);
}

}  // namespace
}  // namespace ssn::test
