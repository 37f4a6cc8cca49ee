#include "datasets/dataset.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "datasets/cifar.h"
#include "datasets/idx.h"
#include "datasets/image_folder.h"
#include "datasets/image_pack.h"
#include "datasets/synthetic.h"
#include "datasets/text.h"
#include "runtime/config.h"
#include "runtime/liveness.h"
#include "runtime/storage.h"
#include "runtime/text.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;

/// NAME:DETAIL taken apart.
struct Spec {
  std::string name, detail;
};

struct Sets {
  ImageSet train, test;
  std::int64_t classes;
};

/// The positive numbers of "3x32x32"; empty if the text is anything else or one is above 2^31 − 1.
std::vector<std::int64_t> parse_extents(std::string_view text) {
  std::vector<std::int64_t> extents;
  const char *at = text.data(), *end = at + text.size();
  for (;;) {
    std::int32_t value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value <= 0) return {};
    extents.push_back(value);
    if (stop == end) return extents;
    if (*stop != 'x') return {};
    at = stop + 1;
  }
}

KnownSet parse_synthetic(const std::string& detail) {
  if (detail.empty()) return {.input = {.size = {3, 32, 32}, .classes = 10}, .samples = 2000};
  const std::vector<std::int64_t> e = parse_extents(detail);
  check_usage(e.size() == 5, "--data",
              "expected synthetic:CxHxWxCLASSESxN, such as synthetic:3x32x32x10x2000, found '{}'", detail);
  const double image = static_cast<double>(e[0]) * static_cast<double>(e[1]) * static_cast<double>(e[2]);
  const double patterns = static_cast<double>(e[3]) * (4 * image + sizeof(std::vector<float>));
  const double images = 1.2 * static_cast<double>(e[4]) * (image + 4);  // and labels, of both sets
  check_usage(patterns + images <= static_cast<double>(physical_memory()), "--data",
              "synthetic:{} would take {:.3g} GiB, more than this machine has: ask for less", detail,
              (patterns + images) / (1 << 30));
  check_usage(e[4] >= e[3], "--data",
              "synthetic:{} has {} classes, but {} images only: ask for one a class at least", detail, e[3],
              e[4]);
  return {.input = {.size = {e[0], e[1], e[2]}, .classes = e[3]}, .samples = e[4]};
}

std::int64_t parse_documents(const std::string& detail) {
  if (detail.empty()) return 2000;
  const std::vector<std::int64_t> e = parse_extents(detail);
  constexpr std::int64_t kMost = 1 << 20;
  check_usage(e.size() == 1 && e[0] <= kMost, "--data",
              "expected synthetic-text:N with at most {} documents, such as synthetic-text:2000, found '{}'",
              kMost, detail);
  return e[0];
}

/// Where the sample is: SSN_DATA_DIR, or else beside the program's own prefix, in the source tree, or where
/// it was to be installed.
std::string sample_directory(const std::string& name) {
  if (const char* given = std::getenv("SSN_DATA_DIR"); given != nullptr && *given != '\0')
    return fs::path(given) / name;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path places[] = {program.parent_path().parent_path() / "share/shapeshifter",
                             build::source_data_dir, build::install_data_dir};
  for (const fs::path& place : places)
    if (fs::is_directory(place / name, error)) return place / name;
  fail("--data", "the sample '{}' is not in {}, {} or {}: set SSN_DATA_DIR to the directory that holds it",
       name, places[0].string(), places[1].string(), places[2].string());
}

Sets read_idx(const std::string& directory, std::int64_t classes) {
  Sets sets{.train = read_idx_set(directory, "train", classes), .test = {}, .classes = classes};
  if (classes == 0) sets.classes = 1 + *std::ranges::max_element(sets.train.labels.span<std::int32_t>());
  sets.test = read_idx_set(directory, "t10k", sets.classes);
  return sets;
}

Sets read_cifar10(const std::string& directory) {
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back(fmt::format("data_batch_{}.bin", i));
  return {read_cifar(directory, names, kCifar10),
          read_cifar(directory, std::vector<std::string>{"test_batch.bin"}, kCifar10), 10};
}

Sets read_cifar100(const std::string& directory) {
  const auto part = [&](const char* name) {
    return read_cifar(directory, std::vector<std::string>{name}, kCifar100);
  };
  return {part("train.bin"), part("test.bin"), 100};
}

Sets generate_synthetic(const std::string& detail, std::uint64_t seed) {
  const auto [input, count] = parse_synthetic(detail);
  return {synthetic_images(input, count, seed, 0),
          synthetic_images(input, std::max<std::int64_t>(1, count / 5), seed, 1), input.classes};
}

enum class Kind { sample, idx, cifar10, cifar100, folder, packed, synthetic, text, synthetic_text };

bool is_encoded(Kind kind) {
  return kind == Kind::folder || kind == Kind::packed;
}

/// What is known of a name. No classes: the files or the specification tell.
struct Format {
  const char* name;
  Kind kind;
  KnownSet known;
  Augmentation augmentation;
};
constexpr Augmentation kCifarAugmentation{.flip = true, .crop_padding = 4};
const Format kFormats[] = {
    {"digits", Kind::sample, {{{1, 8, 8}, 10}, 1433}, {.crop_padding = 1}},
    {"mnist", Kind::idx, {{{1, 28, 28}, 10}, 60000}, {.crop_padding = 2}},
    {"idx", Kind::idx, {}, {}},
    {"cifar10", Kind::cifar10, {{{3, 32, 32}, 10}, 50000}, kCifarAugmentation},
    {"cifar100", Kind::cifar100, {{{3, 32, 32}, 100}, 50000}, kCifarAugmentation},
    {"glyphs", Kind::cifar100, {{{3, 32, 32}, 100}, 10000}, {.crop_padding = 4}},
    {"folder", Kind::folder, {{{3, 224, 224}, 0}, 0}, {}},
    {"packed", Kind::packed, {{{3, 224, 224}, 0}, 0}, {}},
    {"synthetic", Kind::synthetic, {}, {}},
    {"text", Kind::text, {}, {}},
    {"synthetic-text", Kind::synthetic_text, {}, {}},
};

Sets read(const Format& format, const std::string& detail, std::uint64_t seed) {
  switch (format.kind) {
    case Kind::sample: return read_idx(sample_directory(format.name), format.known.input.classes);
    case Kind::idx: return read_idx(detail, format.known.input.classes);
    case Kind::cifar10: return read_cifar10(detail);
    case Kind::cifar100: return read_cifar100(detail);
    default: break;
  }
  return generate_synthetic(detail, seed);
}

Spec parse_spec(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return {std::string(text), ""};
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

const Format& find_format(const Spec& spec) {
  const auto* format = std::ranges::find(kFormats, spec.name, &Format::name);
  check_usage(format != std::end(kFormats), "--data", "there is no data set '{}'; {}", spec.name,
              suggestion(spec.name, dataset_names()));
  check_usage(format->kind != Kind::sample || spec.detail.empty(), "--data",
              "{} comes with the project and takes no path; found '{}'", spec.name, spec.detail);
  const bool generated = format->kind == Kind::synthetic || format->kind == Kind::synthetic_text;
  const bool text = format->kind == Kind::text;
  check_usage(format->kind == Kind::sample || generated || !spec.detail.empty(), "--data",
              "{} needs {}: {}:{}", spec.name, text ? "a file or a directory" : "the directory of its files",
              spec.name, text ? "PATH" : "DIR");
  return *format;
}

ImageSize size_of_images(const ImageSet& set) {
  const Shape& s = set.images.shape();
  return {.channels = s[3], .height = s[1], .width = s[2]};
}

void resize_set(ImageSet& set, const ImageSize& size) {
  set.images = convert_channels(resize_images(set.images, size.height, size.width), size.channels);
}

}  // namespace

ImageSize ImageSize::parse(std::string_view text) {
  const std::vector<std::int64_t> e = parse_extents(text);
  check_usage(e.size() == 3, "image size", "expected CxHxW, such as 3x32x32, found '{}'", text);
  constexpr double kMostValues = 1 << 28;
  check_usage(
      static_cast<double>(e[0]) * static_cast<double>(e[1]) * static_cast<double>(e[2]) <= kMostValues,
      "image size", "expected at most 2^28 values an image, found '{}'", text);
  return {e[0], e[1], e[2]};
}

std::string InputShape::text() const {
  if (length > 0) return fmt::format("{} tokens of a vocabulary of {}", length, vocabulary);
  return fmt::format("{} images of {} classes", size.text(), classes);
}

EncodedSets open_encoded_sets(std::string_view text) {
  const Spec spec = parse_spec(text);
  const Kind kind = find_format(spec).kind;
  check_usage(is_encoded(kind), "--data", "{} has no files of images; expected folder:DIR or packed:DIR",
              text);
  return kind == Kind::folder ? open_image_folder(spec.detail) : open_image_pack(spec.detail);
}

Dataset load_dataset(std::string_view text, const DatasetOptions& options) {
  const Busy busy("reads the data");
  const Spec spec = parse_spec(text);
  const Format& format = find_format(spec);
  if (format.kind == Kind::text) return load_text(spec.detail, options);
  if (format.kind == Kind::synthetic_text) return load_synthetic_text(parse_documents(spec.detail), options);
  check_usage(!options.facts || options.facts->input.length == 0, "--data",
              "{} has images, the network reads text", text);
  if (is_encoded(format.kind)) return encoded_dataset(spec.name, open_encoded_sets(text), options);
  Sets sets = read(format, spec.detail, options.seed);
  const ImageSize size = size_of_images(sets.train);
  check(size == size_of_images(sets.test), "--data",
        "{}: the training images are {}, but the test images are {}", text, size.text(),
        size_of_images(sets.test).text());
  Augmentation augmentation = format.augmentation;
  if (options.input || options.facts) {
    const ImageSize& wanted = options.facts ? options.facts->input.size : *options.input;
    check_usage(wanted.channels == size.channels || wanted.channels == 1 || size.channels == 1, "--data",
                "{} has images of {} channels, which cannot be turned into {}", text, size.channels,
                wanted.channels);
    resize_set(sets.train, wanted);
    resize_set(sets.test, wanted);
    // The shift follows the images to another size.
    augmentation.crop_padding = std::llround(static_cast<double>(augmentation.crop_padding * wanted.height) /
                                             static_cast<double>(size.height));
  }
  augmentation.flip = options.flip.value_or(augmentation.flip);
  augmentation.crop_padding = options.crop_padding.value_or(augmentation.crop_padding);
  augmentation.cutout = options.cutout.value_or(0);
  const Normalization normalization =
      options.facts ? options.facts->normalization : normalization_of(sets.train.images);
  return {.name = spec.name,
          .train = std::make_shared<ImageSamples>(sets.train, augmentation, normalization),
          .test = std::make_shared<ImageSamples>(sets.test, augmentation, normalization),
          .facts = {.input = {size_of_images(sets.train), sets.classes}, .normalization = normalization},
          .augmentation = augmentation};
}

std::optional<KnownSet> known_set(std::string_view text, const DatasetOptions& options) {
  const Spec spec = parse_spec(text);
  const Format& format = find_format(spec);
  if (format.kind == Kind::synthetic) return parse_synthetic(spec.detail);
  if (format.kind == Kind::text) return known_text(options);
  if (format.kind == Kind::synthetic_text) {
    const Dataset data = load_synthetic_text(parse_documents(spec.detail), options);
    return KnownSet{.input = data.facts.input, .samples = data.train->size()};
  }
  std::error_code error;
  if (is_encoded(format.kind) && fs::is_directory(spec.detail, error)) {
    const EncodedSets sets = open_encoded_sets(text);
    return KnownSet{{format.known.input.size, std::ssize(sets.classes)}, sets.train->size()};
  }
  if (format.known.input.size.channels == 0) return {};
  return format.known;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

}  // namespace ssn
