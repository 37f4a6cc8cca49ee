// The readers of IDX and CIFAR files, generated sets, and the names that load_dataset takes.
#include <gtest/gtest.h>

#include <cstdlib>

#include "data_files.h"
#include "datasets/cifar.h"
#include "datasets/dataset.h"
#include "datasets/idx.h"
#include "runtime/parallel.h"

namespace ssn::test {
namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

const ImageSet& train_of(const Dataset& data) {
  return dynamic_cast<const ImageSamples&>(*data.train).set();
}
const ImageSet& test_of(const Dataset& data) {
  return dynamic_cast<const ImageSamples&>(*data.test).set();
}

void expect_labels(const ImageSet& set, const std::vector<std::int32_t>& labels) {
  const auto span = set.labels.span<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(span.begin(), span.end()), labels);
}

/// A whole directory of 3 training and 2 test images of 5 x 4.
void write_idx_directory(const TempDir& dir, bool gzip) {
  write_data(dir / "train-images-idx3-ubyte", idx_bytes({3, 5, 4}, 60), gzip);
  write_data(dir / "train-labels-idx1-ubyte", idx_labels({2, 0, 6}), gzip);
  write_data(dir / "t10k-images-idx3-ubyte", idx_bytes({2, 5, 4}, 40), gzip);
  write_data(dir / "t10k-labels-idx1-ubyte", idx_labels({1, 6}), gzip);
}

TEST(Idx, ReadsPlainAndGzipAlike) {
  for (const bool gzip : {false, true}) {
    const TempDir dir;
    write_idx_directory(dir, gzip);
    const Dataset data = load_dataset("idx:" + dir.path());
    EXPECT_EQ(data.name, "idx");
    EXPECT_EQ(data.facts.input.size, (ImageSize{1, 5, 4}));
    EXPECT_EQ(data.facts.input.classes, 7);
    EXPECT_EQ(train_of(data).images.shape(), (Shape{3, 5, 4, 1}));
    for (std::size_t i = 0; i < 60; ++i)
      ASSERT_EQ(train_of(data).images.span<std::uint8_t>()[i], i * 37 % 251) << "at " << i;
    expect_labels(train_of(data), {2, 0, 6});
    expect_labels(test_of(data), {1, 6});
  }
}

TEST(Idx, ReadsSeveralGzipStreamsInOneFile) {
  const TempDir dir;
  const Bytes whole = idx_bytes({3, 5, 4}, 60);
  Bytes joined;
  for (const auto& [begin, end] : {std::pair(0, 30), std::pair(30, 76)}) {
    write_gzip(dir / "part", Bytes(whole.begin() + begin, whole.begin() + end));
    const Bytes part = read_plain(dir / "part");
    joined.insert(joined.end(), part.begin(), part.end());
  }
  write_plain(dir / "images", joined);
  EXPECT_EQ(read_idx_images(dir / "images").shape(), (Shape{3, 5, 4, 1}));
}

TEST(Idx, NamesWhatIsWrongWithAFile) {
  for (const bool gzip : {false, true}) {
    const TempDir dir;
    const auto expect_bad = [&](const std::string& name, const Bytes& bytes, std::vector<std::string> parts) {
      write_data(dir / name, bytes, gzip);
      const std::string path = (dir / name) + (gzip ? ".gz" : "");
      parts.push_back(path);
      expect_error([&] { read_idx_images(path); }, parts);
    };
    expect_bad("truncated", idx_bytes({30, 50, 4}, 5999),
               {"truncated: the content (30 images of 50 x 4) needs 6000 bytes from byte 16 on, found 5999"});
    expect_bad("header", {0, 0, 8, 3, 0, 0},
               {"truncated: the IDX header needs 4 bytes from byte 4 on, found 2"});
    expect_bad("empty", {}, {"truncated", "found 0"});
    expect_bad("long", idx_bytes({3, 5, 4}, 61), {"too long", "after 3 images of 5 x 4, at byte 76"});
    expect_bad("labels", idx_labels({1, 2, 3, 4}), {"not an IDX file of images", "0x00000803", "0x00000801"});
    expect_bad("foreign", {'#', '!', '/', 'b', 'i', 'n', '/', 's', 'h', '\n'},
               {"not an IDX file of images", "0x23212f62"});
    expect_bad("none", idx_bytes({0, 5, 4}, 0), {"holds no images", "0 x 5 x 4"});
    expect_bad("flat", idx_bytes({3, 5, 0}, 0), {"holds no images", "3 x 5 x 0"});
  }
}

TEST(Idx, DoesNotAllocateWhatAHeaderMerelyClaims) {
  const std::size_t before = pool_stats(Device::cpu).peak;
  for (const bool gzip : {false, true}) {
    const TempDir dir;
    for (const auto& extents : {std::vector<std::uint32_t>{0xffffffff, 0xffffffff, 0xffffffff},
                                {1u << 31, 1u << 31, 4},
                                {1u << 20, 28, 28}}) {
      write_data(dir / "images", idx_bytes(extents, 100), gzip);
      expect_error([&] { read_idx_images((dir / "images") + (gzip ? ".gz" : "")); },
                   {"truncated", "more than can be in it"});
    }
  }
  EXPECT_LE(pool_stats(Device::cpu).peak, before);
}

TEST(Idx, FindsDamageInGzipFiles) {
  const TempDir dir;
  write_gzip(dir / "whole", idx_bytes({30, 50, 4}, 6000));
  const Bytes whole = read_plain(dir / "whole");
  const auto expect_bad = [&](const Bytes& bytes, std::vector<std::string> parts) {
    write_plain(dir / "bad", bytes);
    parts.push_back(dir / "bad");
    expect_error([&] { read_idx_images(dir / "bad"); }, parts);
  };
  EXPECT_NO_THROW(read_idx_images(dir / "whole"));
  Bytes bad = whole;
  bad[bad.size() - 8] ^= 1;  // the checksum
  expect_bad(bad, {"damaged gzip file (incorrect data check)"});
  bad = whole, bad[whole.size() / 2] ^= 0xff;
  expect_bad(bad, {"gzip"});
  expect_bad(Bytes(whole.begin(), whole.end() - 9), {"ends inside its gzip stream"});
  expect_bad(Bytes(whole.begin(), whole.end() - 1), {"ends inside its gzip stream"});
  expect_bad(Bytes(whole.begin(), whole.begin() + 5), {"ends inside its gzip stream"});
  bad = whole, bad.push_back('x');
  expect_bad(bad, {"extra bytes after its gzip stream"});
  bad = whole, bad.push_back(0x1f);
  expect_bad(bad, {"ends inside its gzip stream"});
}

TEST(Idx, NamesWhatIsWrongWithADirectory) {
  const TempDir dir;
  const std::string spec = "idx:" + dir.path(), images = dir / "train-images-idx3-ubyte",
                    labels = dir / "train-labels-idx1-ubyte";
  const auto load = [&] { load_dataset(spec); };
  expect_error([] { load_dataset("mnist:/no/such/place"); }, {"/no/such/place: no such directory"});
  expect_error(load, {dir.path(), "expected train-images-idx3-ubyte or train-images-idx3-ubyte.gz"});
  write_idx_directory(dir, false);
  EXPECT_NO_THROW(load());
  expect_error([&] { load_dataset("idx:" + images); }, {images, "is a file; expected the directory"});

  write_plain(labels, idx_labels({1, 2}));
  expect_error(load, {labels + ": holds 2 labels, but " + images + " holds 3 images"});
  write_plain(labels, idx_labels({1, 5, 4}));
  expect_error(load, {"t10k-labels", "label 6 of image 1 is out of range; expected 0 to 5"});
  write_plain(labels, idx_labels({10, 5, 6}));
  EXPECT_EQ(load_dataset(spec).facts.input.classes, 11);
  expect_error([&] { load_dataset("mnist:" + dir.path()); },
               {labels, "label 10 of image 0 is out of range; expected 0 to 9"});
  write_plain(dir / "t10k-images-idx3-ubyte", idx_bytes({2, 4, 5}, 40));
  expect_error(load, {"the training images are 1x5x4, but the test images are 1x4x5"});
}

TEST(Idx, NamesWhatCannotBeRead) {
  const TempDir dir;
  expect_error([&] { read_idx_labels(dir / "missing"); }, {"missing: cannot be read: No such file"});
  expect_error([&] { read_idx_labels(dir.path()); }, {dir.path() + ": is a directory; expected a file"});
  expect_error([] { read_idx_labels("/dev/null"); }, {"/dev/null: is not a regular file"});
  std::filesystem::create_symlink("/proc/self/mem", dir / "io");  // reading address 0 fails
  expect_error([&] { read_idx_labels(dir / "io"); }, {"io: cannot be read: Input/output error"});
}

TEST(Idx, NamesAFileWithoutPermission) {
  const TempDir dir;
  write_plain(dir / "labels", idx_labels({1, 2}));
  std::filesystem::permissions(dir / "labels", std::filesystem::perms::none);
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  const uid_t user = geteuid();
  if (user == 0) {
    ASSERT_EQ(seteuid(65534), 0);  // root may read every file
  }
  expect_error([&] { read_idx_labels(dir / "labels"); }, {"labels: cannot be read: Permission denied"});
  ASSERT_EQ(seteuid(user), 0);
}

/// A record's pixel of channel c at p is (seed + 7 c + p) mod 256.
void append_record(Bytes& to, const Bytes& labels, int seed) {
  to.insert(to.end(), labels.begin(), labels.end());
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 1024; ++p) to.push_back(static_cast<std::uint8_t>(seed + 7 * c + p));
}

TEST(Cifar, ReadsBothFormatsPlainAndGzip) {
  for (const bool gzip : {false, true}) {
    const TempDir dir;
    Bytes hundred, test;
    append_record(hundred, {19, 99}, 1);
    append_record(hundred, {0, 42}, 2);
    append_record(test, {3, 0}, 3);
    write_data(dir / "train.bin", hundred, gzip);
    write_data(dir / "test.bin", test, gzip);
    const Dataset fine = load_dataset("cifar100:" + dir.path());
    expect_labels(train_of(fine), {99, 42});
    expect_labels(test_of(fine), {0});
    EXPECT_EQ(fine.facts.input.classes, 100);
    EXPECT_TRUE(fine.augmentation.flip);
    EXPECT_FALSE(load_dataset("glyphs:" + dir.path()).augmentation.flip);
    const auto pixels = train_of(fine).images.span<std::uint8_t>();
    for (int p = 0; p < 1024; ++p)
      for (int c = 0; c < 3; ++c)
        ASSERT_EQ(pixels[3072 + p * 3 + c], (2 + 7 * c + p) % 256) << p << ", " << c;

    std::vector<std::int32_t> labels;
    for (int i = 1; i <= 5; ++i) {
      Bytes batch;
      append_record(batch, {static_cast<std::uint8_t>(2 * i - 1)}, i);
      write_data(dir / fmt::format("data_batch_{}.bin", i), batch, gzip);
      labels.push_back(2 * i - 1);
    }
    expect_error([&] { load_dataset("cifar10:" + dir.path()); },
                 {"expected test_batch.bin or test_batch.bin.gz in it, found neither"});
    test.erase(test.begin());
    write_data(dir / "test_batch.bin", test, gzip);
    const Dataset ten = load_dataset("cifar10:" + dir.path());
    expect_labels(train_of(ten), labels);
    EXPECT_EQ(ten.facts.input.classes, 10);
  }
}

TEST(Cifar, NamesWhatIsWrongWithAFile) {
  for (const bool gzip : {false, true}) {
    const TempDir dir;
    const std::vector<std::string> names = {"train.bin"};
    const auto expect_bad = [&](const Bytes& bytes, const CifarFormat& format,
                                std::vector<std::string> parts) {
      write_data(dir / "train.bin", bytes, gzip);
      parts.push_back((dir / "train.bin") + (gzip ? ".gz: " : ": "));
      expect_error([&] { read_cifar(dir.path(), names, format); }, parts);
    };
    Bytes good, bad;
    append_record(good, {19, 99}, 1);
    append_record(good, {5, 0}, 2);
    expect_bad({}, kCifar10, {"is empty"});
    expect_bad(Bytes(good.begin(), good.end() - 1), kCifar100,
               {"3073 bytes are left after 1 whole records of 3074 bytes"});
    bad = good, bad.push_back(0);
    expect_bad(bad, kCifar100, {"too long", "1 bytes are left after 2 whole records"});
    bad = good, bad[3075] = 100;
    expect_bad(bad, kCifar100, {"label 100 of record 1 is out of range; expected 0 to 99"});
    bad = good, bad[0] = 20;
    expect_bad(bad, kCifar100, {"superclass label 20 of record 0 is out of range; expected 0 to 19"});
    expect_bad(good, kCifar10, {"label 19 of record 0 is out of range; expected 0 to 9"});
  }
}

TEST(Datasets, DigitsComeWithTheProject) {
  const Dataset data = load_dataset("digits");
  EXPECT_EQ(train_of(data).images.shape(), (Shape{1433, 8, 8, 1}));
  EXPECT_EQ(test_of(data).images.shape(), (Shape{364, 8, 8, 1}));
  EXPECT_EQ(data.facts.input.classes, 10);
  EXPECT_FALSE(data.augmentation.flip);
  EXPECT_EQ(known_set("digits")->input, data.facts.input);
  EXPECT_EQ(known_set("digits")->samples, train_of(data).size());
  std::array<int, 10> counts{};
  for (const std::int32_t label : test_of(data).labels.span<std::int32_t>()) ++counts[label];
  EXPECT_EQ(counts, (std::array<int, 10>{36, 37, 36, 37, 37, 37, 37, 36, 35, 36}));
}

TEST(Datasets, TheEnvironmentNamesThePlaceOfTheSample) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "digits");
  setenv("SSN_DATA_DIR", dir.path().c_str(), 1);
  expect_error([] { load_dataset("digits"); }, {dir / "digits", "found neither"});
  unsetenv("SSN_DATA_DIR");
  EXPECT_NO_THROW(load_dataset("digits"));
}

TEST(Datasets, WrongSpecificationsAreWrongUsage) {
  const auto expect_usage = [](const std::string& spec, const std::vector<std::string>& parts) {
    expect_error<UsageError>([&] { load_dataset(spec); }, parts);
    expect_error<UsageError>([&] { known_set(spec); }, parts);
  };
  expect_usage("cifar01:/data", {"no data set 'cifar01'", "did you mean 'cifar10'?"});
  expect_usage("MNIST", {"did you mean 'mnist'?"});
  expect_usage("imagenet", {"known: digits, mnist, idx, "});
  expect_usage("", {"no data set ''"});
  expect_usage("mnist", {"mnist needs the directory of its files: mnist:DIR"});
  expect_usage("cifar10:", {"cifar10:DIR"});
  expect_usage("digits:/data", {"digits comes with the project and takes no path; found '/data'"});
  for (const char* detail : {"3x32x32", "3x32x32x10x100x1", "3x32x0x10x100", "3x32x-1x10x100", "axbxcxdxe",
                             "3x32x32x10x100 ", "x3x32x32x10", "3x32x32x10x"})
    expect_usage(std::string("synthetic:") + detail, {"expected synthetic:CxHxWxCLASSESxN"});
  expect_usage("synthetic:3x100000x100000x10x1000", {"GiB, more than this machine has"});
  expect_usage("synthetic:1x1x1x2000000000x2000000000", {"more than this machine has"});
  expect_usage("synthetic:3x8x8x10x9", {"10 classes, but 9 images"});
  for (const char* size : {"", "3", "3x32", "3x32x32x1", "3x32xx", "0x8x8", "99999999999x1x1"})
    expect_error<UsageError>([&] { ImageSize::parse(size); }, {"expected CxHxW"});
  expect_error<UsageError>([&] { ImageSize::parse("2x1000000000x1000000000"); }, {"at most 2^28 values"});
  EXPECT_EQ(ImageSize::parse("3x32x16"), (ImageSize{3, 32, 16}));
}

TEST(Datasets, ResizesAtLoading) {
  const Dataset data = load_dataset("digits", {.input = ImageSize{3, 4, 2}});
  EXPECT_EQ(train_of(data).images.shape(), (Shape{1433, 4, 2, 3}));
  EXPECT_EQ(test_of(data).images.shape(), (Shape{364, 4, 2, 3}));
  EXPECT_EQ(data.facts.input.size.text(), "3x4x2");
  EXPECT_EQ(data.facts.normalization.mean.size(), 3u);
  EXPECT_EQ(load_dataset("digits", {.input = ImageSize{1, 32, 32}}).augmentation.crop_padding, 4);
  expect_error<UsageError>(
      [] {
        load_dataset("synthetic:3x8x8x2x10", {.input = ImageSize{4, 8, 8}});
      },
      {"images of 3 channels, which cannot be turned into 4"});
}

TEST(Synthetic, DependsOnTheSeedAlone) {
  const int threads = num_threads();
  const Dataset one = load_dataset("synthetic:3x7x5x4x41", {.seed = 3});
  set_num_threads(3);
  const Dataset same_seed = load_dataset("synthetic:3x7x5x4x41", {.seed = 3});
  set_num_threads(threads);
  const Dataset other = load_dataset("synthetic:3x7x5x4x41", {.seed = 4});
  EXPECT_EQ(train_of(one).images.shape(), (Shape{41, 7, 5, 3}));
  EXPECT_EQ(test_of(one).images.shape(), (Shape{8, 7, 5, 3}));
  EXPECT_EQ(known_set("synthetic:3x7x5x4x41")->input.classes, 4);
  EXPECT_TRUE(same(train_of(one).images, train_of(same_seed).images));
  EXPECT_FALSE(same(train_of(one).images, train_of(other).images));
  EXPECT_FALSE(same(train_of(one).images.slice(0, test_of(one).images.shape()), test_of(one).images));
}

/// The nearest class mean of the training images must classify the test images: there is something to learn.
TEST(Synthetic, CanBeLearned) {
  const Dataset data = load_dataset("synthetic:1x9x7x5x200", {.seed = 1});
  constexpr int kPixels = 63, kClasses = 5;
  std::array<std::array<double, kPixels>, kClasses> mean{};
  for (int n = 0; n < 200; ++n)
    for (int p = 0; p < kPixels; ++p)
      mean[train_of(data).labels.span<std::int32_t>()[n]][p] +=
          train_of(data).images.span<std::uint8_t>()[n * kPixels + p] / 40.0;
  int right = 0;
  for (int n = 0; n < 40; ++n) {
    std::array<double, kClasses> distance{};
    for (int k = 0; k < kClasses; ++k)
      for (int p = 0; p < kPixels; ++p)
        distance[k] += std::pow(mean[k][p] - test_of(data).images.span<std::uint8_t>()[n * kPixels + p], 2);
    right +=
        std::ranges::min_element(distance) - distance.begin() == test_of(data).labels.span<std::int32_t>()[n];
  }
  EXPECT_EQ(right, 40);
}

}  // namespace
}  // namespace ssn::test
