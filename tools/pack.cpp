#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "datasets/image_pack.h"
#include "runtime/liveness.h"
#include "runtime/log.h"
#include "runtime/options.h"
#include "runtime/progress.h"
#include "runtime/storage.h"
#include "tools/commands.h"
#include "tools/training/metrics.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;

struct PackCommand {
  std::string data, out;
  PackOptions how;
  std::int64_t shards = 0;
  bool overwrite = false, json = false, quiet = false;
  Options options{
      "ssn pack",
      "Puts the files of a folder of images together into a few large ones, for file systems that are\n"
      "slow with many small ones; --data packed:DIR reads them, with the same result. Each rank writes\n"
      "some of them.",
      "mpirun -n 8 ssn pack --data folder:DIR --out DIR2 --size 256"};

  PackCommand() {
    options.add("data", data, "folder:DIR", "the images: DIR/train/CLASS/*.jpg, DIR/val/CLASS/*.jpg")
        .add("out", out, "DIR", "the directory to write to")
        .add("size", how.size, "PIXELS",
             "make images smaller whose shorter side is longer than this (JPEG, quality 95)",
             between(0, 65500))
        .show_default("all stay as they are")
        .add("shards", shards, "N", "files for the training images, at most; the others in as many",
             between(0, 512))
        .show_default("as many as keep each below 512 MiB")
        .add("skip-bad", how.skip_bad, "decode each image, and leave out those that are damaged")
        .add("overwrite", overwrite, "replace the packed images that the directory holds")
        .flag_only()
        .add("json", json, "print the result as one JSON object")
        .flag_only()
        .add("quiet", quiet, "no progress on stderr")
        .flag_only();
  }
};

/// Makes the directory, empty of packed images; `data` is what will be packed.
void prepare(Comm& comm, const std::string& directory, const std::string& data, bool overwrite) {
  on_root(comm, [&] {
    std::error_code error;
    check_usage(!data.starts_with("packed:") || !fs::equivalent(data.substr(7), directory, error), "pack",
                "{} cannot be packed into itself: choose another name", data);
    fs::create_directories(directory, error);
    check_usage(fs::is_directory(directory, error), "pack",
                "{}: cannot be made a directory; choose another name", directory);
    check(access(directory.c_str(), W_OK) == 0, "pack", "cannot write into {}: {}", directory,
          std::strerror(errno));
    const std::vector<std::string> old = find_shards(directory);
    check_usage(
        old.empty() || overwrite, "pack",
        "{} holds packed images already, such as {}: replace them with --overwrite, or choose another name",
        directory, old.empty() ? "" : old[0]);
    for (const std::string& name : old) fs::remove(fs::path(directory) / name);
  });
}

/// A file has them a line each.
void check_names(const std::vector<std::string>& classes) {
  for (const std::string& name : classes)
    check_usage(name.find('\n') == name.npos, "pack",
                "the name of the class '{}' has a line break, which cannot be packed: rename its directory",
                name);
}

/// How many files, where the user leaves it open; that are possible otherwise.
std::int64_t choose_shards(const EncodedImages& images, std::int64_t given) {
  const std::int64_t usual = usual_shards(images);
  if (given == 0) return usual;
  const double bytes = 512.0 * (1 << 20) * static_cast<double>(usual) / static_cast<double>(given);
  check_usage(usual <= given || bytes < static_cast<double>(physical_memory()) / 4, "pack",
              "--shards {}: files of {:.0f} GiB do not fit into memory; ask for more, {} are usual", given,
              bytes / (1 << 30), usual);
  return std::min(given, images.size());
}

}  // namespace

int pack(Comm& comm, const Arguments& arguments) {
  PackCommand command;
  auto& [data, out, how, given, overwrite, json, quiet, options] = command;
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  set_log({.rank = comm.rank(), .quiet = quiet});
  check_usage(!data.empty() && !out.empty(), "pack",
              "which images, and where to? For example: ssn pack --data folder:DIR --out DIR2");
  const auto start = std::chrono::steady_clock::now();
  const EncodedSets sets = open_encoded_sets(data);
  check_names(sets.classes);
  const std::int64_t shards = choose_shards(*sets.train, given);
  prepare(comm, out, data, overwrite);

  std::optional<Busy> busy("packs images");
  std::vector<double> sums(6);  // train images, val images, bytes, resized, left out, files
  std::int64_t turn = 0;        // of the ranks, in both parts together
  for (const auto& [part, images] : {std::pair("train", sets.train), std::pair("val", sets.test)}) {
    const std::int64_t count = std::min(shards, images->size());
    for (std::int64_t shard = 0; shard < count; ++shard) {
      if (turn++ % comm.size() != comm.rank()) continue;
      const PackedShard done = write_shard(out, part, shard, count, *images, sets.classes, how);
      sums[images == sets.train ? 0 : 1] += static_cast<double>(done.images);
      sums[2] += static_cast<double>(done.bytes), sums[3] += static_cast<double>(done.resized);
      sums[4] += static_cast<double>(done.left_out), sums[5] += 1;
      info("{}: {} images, {:.1f} MB", shard_name(part, shard, count), grouped(done.images),
           static_cast<double>(done.bytes) / 1e6);
    }
  }
  busy.reset();
  comm.sum_in_rank_order(sums);
  const auto sum = [&](int i) { return static_cast<std::int64_t>(sums[i]); };
  check(sum(0) > 0 && sum(1) > 0, "pack", "no {} images are left: all are damaged",
        sum(0) > 0 ? "test" : "training");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (json) {
    const nlohmann::ordered_json result = {
        {"directory", out}, {"files", sum(5)},   {"train_images", sum(0)}, {"test_images", sum(1)},
        {"bytes", sum(2)},  {"resized", sum(3)}, {"left_out", sum(4)},     {"seconds", rounded(seconds)}};
    print_result(comm, result.dump());
  } else {
    print_result(
        comm, fmt::format("{} training and {} test images, {:.1f} MB, in {} files ({} made smaller, {} left "
                          "out) in {}; use them with --data packed:{}",
                          grouped(sum(0)), grouped(sum(1)), sums[2] / 1e6, sum(5), grouped(sum(3)),
                          grouped(sum(4)), duration_text(seconds), out));
  }
  return 0;
}

}  // namespace ssn
