#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "datasets/cifar.h"
#include "datasets/decode.h"
#include "datasets/idx.h"
#include "datasets/image_pack.h"
#include "datasets/tokenizer.h"
#include "fuzz/target.h"
#include "runtime/checkpoint.h"
#include "runtime/comm.h"
#include "runtime/npz.h"
#include "runtime/options.h"
#include "runtime/safetensors.h"
#include "ssn/mapping.h"
#include "tools/training/task.h"

namespace ssn::fuzz {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A directory that goes with the program.
class Directory {
 public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "ssn-fuzz-XXXXXX").string();
    check(mkdtemp(name.data()) != nullptr, "fuzz", "cannot make a directory for temporary files");
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

/// As `ssn eval` does.
void use(const Archive& archive, const std::string& file) {
  const TrainConfig config = stored_config(archive, file);
  const DataFacts facts = stored_facts(archive);
  Model model = stored_model(archive, config, facts.input, Device::cpu);
  check_plan(model, archive);
  SoloComm comm;
  model.build(comm);
  restore_for_use(model, archive);
}

void read_checkpoint(const std::string& file) {
  use(load_checkpoint(file), file);
}

/// A checkpoint that is whole, and says of itself what the file says: options, then a zero, then a plan.
void read_contents(const std::string& file) {
  static const Archive whole = load_checkpoint(SSN_SEEDS "/checkpoint/version1.h5");
  Archive archive = whole;
  const std::string text = bytes_of(file);
  const std::size_t end = text.find('\0');
  archive.attributes["config"] = text.substr(0, end);
  if (end != text.npos) archive.attributes["plan"] = text.substr(end + 1);
  use(archive, file);
}

void read_hdf5(const std::string& file) {
  load_hdf5(file);
}

void read_idx(const std::string& file) {
  constexpr std::uint8_t kImages = 3;  // extents
  const std::string bytes = bytes_of(file);
  if (bytes.size() > 3 && bytes[3] == kImages)
    read_idx_images(file);
  else
    read_idx_labels(file);
}

void read_cifar_10(const std::string& file) {
  const fs::path path = file;
  const std::string names[] = {path.filename().string()};
  read_cifar(path.parent_path().string(), names, kCifar10);
}

void read_mapping(const std::string& file) {
  const WeightRequest layers[] = {{"conv1", WeightKind::convolution, Shape{8, 4, 3, 3}, 36},
                                  {"block1.conv1", WeightKind::convolution, Shape{8, 8, 3, 3}, 72},
                                  {"fc", WeightKind::linear, Shape{10, 8}, 8}};
  const Mapping mapping{.kind = MappingKind::file, .source = file, .labels = read_labels(file)};
  assign_groups(mapping, layers, 0);
}

/// Options that a file has, as far as a network is planned, for small images.
void use(const TrainConfig& config) {
  optimizer_options(config);
  schedule_options(config);
  parse_epochs(config.lr_steps);
  const InputShape input{.size = {3, 8, 8}, .classes = 10};
  const Model model(config, input, Device::cpu);
}

void read_config(const std::string& file) {
  TrainConfig config;
  Options options("ssn train", "");
  add_network_options(options, config);
  add_training_options(options, config);
  options.parse({"--config", file});
  use(config);
}

void read_vocabulary(const std::string& file) {
  const auto vocabulary = std::make_shared<Vocabulary>(Vocabulary::read(file));
  Tokenizer(vocabulary, false).tokenize("unaffable, and 123 un\xc3\xa4hnlich");
}

void read_image(const std::string& file) {
  const std::string bytes = bytes_of(file);
  const std::span data(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const ImageExtent extent = image_extent(data, file);
  Decoded decoded;
  if (extent.height * extent.width <= 1 << 20)  // what is too large for the test is not for the reader
    decode(data, file, {0, 0, extent.height, extent.width}, {8, 8}, decoded);
}

void read_packed(const std::string& file) {
  static const Directory directory;
  static const fs::path train = directory / "train-0001-of-0001.h5", val = directory / "val-0001-of-0001.h5";
  if (!fs::is_symlink(val)) fs::create_symlink(SSN_SEEDS "/val-0001-of-0001.h5", val);
  fs::remove(train);
  fs::create_symlink(fs::absolute(file), train);
  const EncodedSets sets = open_image_pack(directory.path());
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < sets.train->size(); ++i) {
    sets.train->name(i);
    sets.train->read(i, bytes);
  }
}

}  // namespace

/// Compressed files may hold many times their size.
std::span<const Target> targets() {
  static const Target all[] = {{"checkpoint", read_checkpoint, 64},
                               {"hdf5", read_hdf5, 64},
                               {"safetensors", [](const std::string& file) { read_safetensors(file); }, 64},
                               {"npz", [](const std::string& file) { read_npz(file); }, 128},
                               {"idx", read_idx, 256},
                               {"cifar", read_cifar_10, 256},
                               {"mapping", read_mapping, 128},
                               {"config", read_config, 128},
                               {"contents", read_contents, 128},
                               {"vocabulary", read_vocabulary, 256},
                               {"image", read_image, 128},
                               {"packed", read_packed, 64}};
  return all;
}

}  // namespace ssn::fuzz
