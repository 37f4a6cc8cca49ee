#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/image_set.h"

// Data sets by name.
namespace ssn {

/// Written CxHxW, such as 3x32x32.
struct ImageSize {
  std::int64_t channels = 0, height = 0, width = 0;

  bool operator==(const ImageSize&) const = default;
  std::string text() const { return fmt::format("{}x{}x{}", channels, height, width); }
  /// Throws UsageError.
  static ImageSize parse(std::string_view text);
};

/// What a network needs to know of its data: images of a size and of `classes`; or, where `length` is not 0,
/// text in sequences of that many tokens, each one of `vocabulary`.
struct InputShape {
  ImageSize size = {};
  std::int64_t classes = 0;
  std::int64_t length = 0, vocabulary = 0;

  bool operator==(const InputShape&) const = default;
  /// "3x32x32 images of 10 classes" or "128 tokens of a vocabulary of 8000".
  std::string text() const;
};

/// How a set was read. A checkpoint keeps it, and its network is measured on sets read in the same way.
struct DataFacts {
  InputShape input;
  Normalization normalization = {};          // images: of the training set
  std::vector<std::string> vocabulary = {};  // text: a token's id is its place
  bool cased = false;                        // text: as it is written, not lower-cased without accents
};

struct Dataset {
  std::string name;  // as in the specification, without the path
  Samples train, test;
  DataFacts facts;
  Augmentation augmentation = {};  // of the training set
  std::vector<std::string> classes =
      {};  // their names, where the files have them; a label is a place among them
};

/// How text becomes tokens.
struct TextOptions {
  std::string vocabulary = {};       // a file; else one is built from the training text
  std::int64_t vocabulary_size = 0;  // of that, at most; 0: 8000
  bool cased = false;
  std::int64_t length = 128;  // tokens of a sequence, [CLS] and [SEP] included
};

struct DatasetOptions {
  std::optional<ImageSize> input = {};  // resize to this once, at loading
  std::uint64_t seed = 0;               // of generated sets
  /// Instead of what is usual for the set: flips only where a mirrored image keeps its class.
  std::optional<bool> flip = {};
  std::optional<std::int64_t> crop_padding = {}, cutout = {};
  double crop_area = 0.08;   // image files: the least share of an image that is cut out for training
  std::int64_t threads = 1;  // image files: that decode a batch
  std::optional<DataFacts> facts = {};  // read it as this network's data were
  /// Damaged text files are left out, the place of damaged images is taken by the next good ones; else either
  /// is an Error.
  bool skip_bad = false;
  TextOptions text = {};
};

/// Reads or generates the set named by `spec`, NAME or NAME:PATH:
/// - digits: the sample that comes with the project (1x8x8, 10 classes)
/// - mnist:DIR, idx:DIR: IDX files with MNIST's names; idx derives the class count from the labels
/// - cifar10:DIR, cifar100:DIR: CIFAR's binary files
/// - glyphs:DIR: rendered characters in CIFAR-100's format, never flipped
/// - folder:DIR: DIR/train/CLASS/*.jpg, .jpeg and .png, DIR/val (or DIR/test) alike, as ImageNet usually
/// lies;
///   decoded when used; 3x224x224 unless `input` says otherwise
/// - packed:DIR: the same in a few large files, as `ssn pack` writes them
/// - synthetic[:CxHxWxCLASSESxN]: generated; N training images and a fifth of that for test
/// - text:PATH: a text file or a directory of them (see datasets/corpus.h), for masked-language modelling
/// - synthetic-text[:N]: N generated documents, and a fifth of that for test
///
/// Files may be gzipped. Throws UsageError for a wrong specification, Error for files that are missing or
/// wrong.
Dataset load_dataset(std::string_view spec, const DatasetOptions& options = {});

/// What is known of a set without reading its samples.
struct KnownSet {
  InputShape input;
  std::int64_t samples = 0;  // for training
};
/// Of the set named by `spec`; none (or no classes) where only the files tell. Reads nothing but a given
/// vocabulary and the names in a folder, if it is there. Throws UsageError, Error for a folder that is not as
/// it should be.
std::optional<KnownSet> known_set(std::string_view spec, const DatasetOptions& options = {});

/// Names that load_dataset knows.
std::vector<std::string> dataset_names();

}  // namespace ssn
