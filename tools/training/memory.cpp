#include "tools/training/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <ranges>

#include "autograd/moving_average.h"
#include "autograd/optimizer.h"
#include "layers/models/outline.h"
#include "runtime/dry_run.h"
#include "tools/training/shards.h"
#include "tools/training/task.h"
#include "tools/training/trainer.h"

namespace ssn {
namespace {

/// Whether a segment is `name`, or within it.
bool is_within(std::string_view segment, std::string_view name) {
  return segment.starts_with(name) && (segment.size() == name.size() || segment[name.size()] == '.');
}

Tensor labels_for(const NetworkInput& input, Device device) {
  const std::int64_t labels = input.predicted ? input.predicted.size() : input.images.shape()[0];
  return Tensor::zeros({labels}, DType::i32, device);
}

/// A step in parts of so many samples, as Trainer does it; all but the first take the same.
void dry_step(Model& model, Optimizer& optimizer, const TrainConfig& config, std::int64_t parts,
              std::int64_t samples, const Recompute& recompute) {
  const NetworkTask task = task_of(model.input());
  const Device device = model.parameters.device();
  const TrainingPrecision precision(model);
  model.parameters.zero_gradients();
  for (std::int64_t part = 0; part < std::min<std::int64_t>(parts, 2); ++part) {
    const NetworkInput input = moved(zeros_for(task, samples), device);
    const Pass pass{.training = true, .half = model.half, .recompute = recompute};
    const Var logits = model.network->forward(input, pass);
    const Var loss = cross_entropy(logits, labels_for(input, device), config.label_smoothing, 1);
    backward(loss);
    model.weights.finish_backward();
  }
  optimizer.step(model.parameters, config.lr);
}

std::vector<std::string> named_segments(const std::string& names, const std::vector<std::string>& all) {
  std::vector<std::string> chosen;
  check_usage(!names.empty(), "recompute", "--recompute: the network has no segment ''; it has {}",
              fmt::join(all, ", "));
  for (const auto part : std::views::split(names, ',')) {
    const std::string name(part.begin(), part.end());
    const std::size_t before = chosen.size();
    for (const std::string& segment : all)
      if (is_within(segment, name)) chosen.push_back(segment);
    check_usage(chosen.size() > before, "recompute",
                "--recompute: the network has no segment '{}'; it has {}: give none, all, or names or their "
                "beginnings",
                name, fmt::join(all, ", "));
  }
  return chosen;
}

std::vector<std::string> segments_within(const TrainConfig& config, const RunSize& size,
                                         const std::vector<std::string>& all) {
  const std::int64_t limit = parse_memory(config.memory);
  const auto first = [&](std::size_t count) {
    return std::vector<std::string>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  };
  const auto needs = [&](std::size_t count) {
    return training_memory(config, size, Recompute(first(count)));
  };
  if (needs(0) <= limit) return {};
  const std::int64_t least = needs(all.size());
  check_usage(least <= limit, "memory",
              "--memory {}: a rank's training needs {} even where all segments are recomputed: lower --batch "
              "({}), raise --{} ({}), use more ranks, or --weights lean",
              config.memory, memory_text(least), config.batch, config.shards > 0 ? "shards" : "micro-batches",
              config.shards > 0 ? config.shards : config.micro_batches);
  std::size_t too_few = 0, enough = all.size();
  while (enough - too_few > 1) {
    const std::size_t middle = (too_few + enough) / 2;
    (needs(middle) <= limit ? enough : too_few) = middle;
  }
  return first(enough);
}

}  // namespace

bool Recompute::operator()(std::string_view segment) const {
  return std::binary_search(segments_.begin(), segments_.end(), segment);
}

std::vector<std::string> network_segments(const TrainConfig& config, const InputShape& input) {
  const DryRun dry_run;
  Model model(config, input, Device::cpu);  // the names are the same everywhere
  SoloComm solo;
  model.build(solo);
  std::vector<std::string> segments;
  const auto note = [&](std::string_view name) {
    segments.emplace_back(name);
    return false;
  };
  model.network->forward(zeros_for(task_of(input), 1), {.training = true, .recompute = note});
  model.weights.finish_backward();
  return segments;
}

namespace {

/// Of its pool; exact allocation holds nothing unused.
std::size_t taken(const DryRun& dry_run) {
  const PoolStats stats = dry_run.stats();
  return std::max(stats.held, stats.peak);
}

}  // namespace

std::int64_t training_memory(const TrainConfig& config, const RunSize& size, const Recompute& recompute) {
  const DryRun dry_run;
  const NetworkTask task = task_of(size.input);
  const auto share = [](std::int64_t samples, std::int64_t parts) {
    return samples / parts + (samples % parts != 0 ? 1 : 0);
  };
  const std::int64_t parts = parts_of_rank(config, size.ranks);
  const std::int64_t samples = share(std::min(config.batch, size.trained), size.ranks * parts);
  const std::int64_t batch = evaluation_options(config).batch;
  const std::int64_t measured =
      share(std::min(batch, size.measured), config.shards > 0 ? size.ranks * parts : size.ranks);
  const Device device = device_of(config);
  const bool host = device == Device::cpu;  // else what the processor keeps is not of this memory
  std::vector<NetworkInput> prepared;       // by the loaders, or on their way to the GPU
  const auto prepare = [&](std::int64_t batches, std::int64_t of) {
    for (std::int64_t i = 0; i < std::min(batches, host ? PrefetchOptions().depth + 1 : 2); ++i) {
      prepared.push_back(zeros_for(task, of));
      if (Tensor& images = prepared.back().images; !host && images)
        images = Tensor::empty(images.shape(), DType::u8);  // as which they travel
    }
  };
  prepare(RunSize::kUnknown, samples);
  Model model(config, size.input, device);
  SoloComm solo;
  model.build(solo);
  const auto optimizer = make_optimizer(optimizer_options(config), model.parameters);
  std::optional<MovingAverage> average;
  if (config.ema > 0) average.emplace(config.ema, model.parameters);
  std::optional<Shards> shards;
  if (config.shards > 0) shards.emplace(solo, model.parameters, parts);
  std::vector<Tensor> snapshot;
  if (size.saves && host) {
    snapshot = {model.parameters.values().clone()};
    for (const Optimizer::State& state : optimizer->states()) snapshot.push_back(state.values.clone());
    if (average) snapshot.push_back(average->values().clone());
  }
  std::size_t recorded = 0;  // of the steps, where they share nothing with the evaluation
  {
    std::optional<DryRun> arena;
    if (records_steps(config, device, size.sums_there)) {
      arena.emplace();
      for (std::int64_t part = 0; part < parts; ++part) prepared.push_back(zeros_for(task, samples));
    }
    for (int step = 0; step < 2; ++step) dry_step(model, *optimizer, config, parts, samples, recompute);
    if (arena) recorded = taken(*arena);
  }
  const NoGrad no_grad;
  const AverageInUse averaged(average, model.parameters);
  prepare(share(size.measured, batch) * (config.shards > 0 ? parts : 1), measured);
  const NetworkInput input = host ? prepared.back() : moved(zeros_for(task, measured), device);
  model.network->forward(input, {});  // evaluate() computes in f32
  return static_cast<std::int64_t>(recorded + taken(dry_run));
}

Recompute choose_recompute(const TrainConfig& config, const RunSize& size) {
  check_usage(config.memory.empty() || config.recompute == "none", "recompute",
              "--memory chooses what is recomputed: leave --recompute {} out", config.recompute);
  if (config.memory.empty() && config.recompute == "none") return {};
  const std::vector<std::string> all = network_segments(config, size.input);
  std::vector<std::string> chosen = !config.memory.empty()      ? segments_within(config, size, all)
                                    : config.recompute == "all" ? all
                                                                : named_segments(config.recompute, all);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return Recompute(std::move(chosen));
}

std::int64_t parse_memory(const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::size_t unit = end < text.data() + text.size() ? kUnits.find(*end) : kUnits.npos;
  const bool whole = unit != kUnits.npos && end + 1 == text.data() + text.size();
  check_usage(error == std::errc() && whole && number > 0 && number < 1e6, "memory",
              "--memory: expected a size such as 800M or 1.5G (units of 2^20 and 2^30 bytes), found '{}'",
              text);
  return std::llround(number * std::pow(1024.0, static_cast<double>(unit + 1)));
}

std::string memory_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto number = static_cast<double>(bytes);
  for (; number >= 1024 && unit + 1 < std::size(kUnits); ++unit) number /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.3g} {}", number, kUnits[unit]);
}

std::int64_t process_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace ssn
