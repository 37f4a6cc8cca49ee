// How many images a second are read from files: decoded, cut, resized, mirrored, normalised. One JSON line.
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "datasets/dataset.h"
#include "datasets/decode.h"
#include "datasets/loader.h"
#include "runtime/comm.h"
#include "runtime/options.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::string data;
  std::int64_t make = 0, size = 64, threads = 1, batch = 100, rounds = 5;
};

Settings parse(const std::vector<std::string>& arguments) {
  Settings s;
  Options options("bench_loader", "Reads image files, one epoch a round, as for training.",
                  "bench_loader --data folder:/tmp/images --make 1000 --size 224 --threads 2");
  options.add("data", s.data, "SPEC", "folder:DIR or packed:DIR")
      .add("make", s.make, "N", "if the folder is not there, make it: N images of 500x375 pixels",
           between(0, 1 << 20))
      .add("size", s.size, "PIXELS", "height and width of the result", at_least(1))
      .add("threads", s.threads, "N", "threads that decode", at_least(1))
      .add("batch", s.batch, "N", "images a batch", at_least(1))
      .add("rounds", s.rounds, "N", "epochs timed, after one that is not", at_least(1));
  if (!options.parse(arguments)) {
    fmt::print("{}", options.help());
    std::exit(0);
  }
  check_usage(!s.data.empty(), "bench_loader", "which images? Give --data folder:DIR");
  return s;
}

/// 500 x 375 with as much detail as makes a JPEG of quality 90 as large as ImageNet's are on average, some
/// 110 KB.
std::vector<std::uint8_t> image_file(std::uint64_t seed) {
  constexpr std::int64_t kHeight = 375, kWidth = 500;
  const Random random(seed, "bench_loader");
  std::vector<std::uint8_t> rgb;
  std::uint64_t draw = 100;
  for (std::int64_t y = 0; y < kHeight; ++y)
    for (std::int64_t x = 0; x < kWidth; ++x) {
      const double noise = 52 * (random.uniform(draw++) - 0.5);
      for (std::uint64_t k = 0; k < 3; ++k) {
        const double wave =
            std::sin(6 * random.uniform(3 * k) + static_cast<double>(y) / 30 * random.uniform(3 * k + 1) +
                     static_cast<double>(x) / 30 * random.uniform(3 * k + 2));
        rgb.push_back(static_cast<std::uint8_t>(128 + 100 * wave + noise));
      }
    }
  return encode_jpeg(rgb.data(), {kHeight, kWidth}, 90);
}

void make_folder(const std::string& directory, std::int64_t count) {
  constexpr std::int64_t kClasses = 10;
  for (const char* part : {"train", "val"})
    for (std::int64_t i = 0; i < (part[0] == 't' ? count : kClasses); ++i) {
      const fs::path folder = fs::path(directory) / part / fmt::format("class{}", i % kClasses);
      fs::create_directories(folder);
      const auto file = image_file(static_cast<std::uint64_t>(i));
      std::ofstream(folder / fmt::format("{:05}.jpg", i), std::ios::binary)
          .write(reinterpret_cast<const char*>(file.data()), std::ssize(file));
    }
}

int run(const Settings& s) {
  set_num_threads(1);  // as the thread that prepares batches has them
  const std::string directory = s.data.substr(s.data.find(':') + 1);
  if (s.make > 0 && !fs::exists(directory)) make_folder(directory, s.make);
  const Dataset data =
      load_dataset(s.data, {.input = ImageSize{3, s.size, s.size},
                            .threads = s.threads,
                            .facts = DataFacts{.input = {{3, s.size, s.size}, 10}, .normalization = {}}});
  const Loader loader(data.train, {.batch = s.batch});
  std::vector<double> rates;
  std::clock_t cpu = 0;
  for (std::int64_t round = 0; round <= s.rounds; ++round) {
    if (round == 1) cpu = std::clock();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) loader.batch(round, step);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (round > 0) rates.push_back(static_cast<double>(loader.steps_per_epoch() * s.batch) / took.count());
  }
  cpu = std::clock() - cpu;
  const double images = static_cast<double>(s.rounds * loader.steps_per_epoch() * s.batch);
  std::sort(rates.begin(), rates.end());
  const nlohmann::ordered_json result = {
      {"size", s.size},
      {"threads", s.threads},
      {"images", data.train->size()},
      {"images_per_second", std::round(rates[rates.size() / 2])},
      {"least", std::round(rates.front())},
      {"most", std::round(rates.back())},
      {"cpu_ms_per_image", std::round(1e6 * static_cast<double>(cpu) / CLOCKS_PER_SEC / images) / 1e3}};
  fmt::print("{}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  ssn::SoloComm comm;
  return ssn::run_ranks(comm, [&] { return ssn::run(ssn::parse({argv + 1, argv + argc})); });
}
