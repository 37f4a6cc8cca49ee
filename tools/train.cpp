#include <filesystem>

#include "runtime/log.h"
#include "runtime/trace_file.h"
#include "tools/commands.h"
#include "tools/exchange/take_weights.h"
#include "tools/training/alike.h"
#include "tools/training/older.h"
#include "tools/training/search.h"
#include "tools/training/trainer.h"

namespace ssn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct TrainCommand {
  TrainConfig config;
  RunConfig run;
  Options options{
      "ssn train",
      "Trains a network inside a parameter budget; without flags, the sample task in well under a minute.",
      "mpirun -n 2 --bind-to none ssn train --model wrn-28-10 --data cifar100:DIR --budget 4M"};
  std::optional<Archive> checkpoint;

  TrainCommand() {
    add_network_options(options, config);
    add_training_options(options, config);
    add_run_options(options, run);
  }
};

/// Reads the checkpoint of --resume (a file, or the directory of a run), and the flags again over the options
/// that it was trained with.
void take_up(TrainCommand& command, const Arguments& arguments) {
  const std::string path = find_checkpoint(command.run.resume);
  command.checkpoint = load_run(path);
  check_usage(command.checkpoint->attributes.contains("trainer/epoch"), "train",
              "--resume: {} holds no training to go on with: start one from it with --init", path);
  command.options.read_text(command.checkpoint->attribute<std::string>("config"), path);
  const OptionValues before = command.options.values();
  command.options.parse(arguments);
  command.run.resume = path;
  take_mapping(*command.checkpoint, command.config);
  const auto changes = changed_options(before, command.options.values(), path);
  info("goes on from {}{}", path, changes.empty() ? "" : fmt::format(", with {}", fmt::join(changes, ", ")));
}

/// What there is to say of a run.
struct Outcome {
  const TrainResult& result;
  double search_seconds;
  std::int64_t replaced;  // samples
  Json memory;
};

Json result_json(const Comm& comm, const TrainCommand& command, const Model& model,
                 const RunDirectory& directory, const Outcome& outcome) {
  const TrainResult& result = outcome.result;
  const Plan& plan = model.plan();
  Json json = {{"network", command.config.model},
               {"data", command.config.data},
               {"ranks", comm.size()},
               {"threads", command.config.threads},
               {"device", command.config.device},
               {"parameters",
                {{"original", plan.original},
                 {"shareable", plan.shareable},
                 {"budget", plan.budget},
                 {"total", plan.total}}},
               {"test_error1", nullptr},
               {"test_error5", nullptr},
               {"test_loss", nullptr},
               {"best_epoch", nullptr},
               {"stopped_early", result.stopped_early},
               {"epochs", result.epochs},
               {"steps", result.steps},
               {"skipped_steps", result.skipped},
               {"seconds", rounded(result.seconds + outcome.search_seconds)},
               {"search_seconds", rounded(result.search_seconds)},
               {"samples_per_second", rounded(result.samples_per_second)},
               {"wire_bytes_per_step", result.wire_bytes_per_step},
               {"host_seconds_per_step", nullptr},
               {"replayed_steps", result.replayed_steps},
               {"replaced_samples", outcome.replaced},
               {"memory", outcome.memory},
               {"saving", to_json(result.saving)},
               {"checkpoint", directory.file("checkpoint.h5")}};
  if (result.test) {
    json["test_error1"] = rounded(result.test->error1());
    json["test_error5"] = rounded(result.test->error5());
    json["test_loss"] = rounded(result.test->loss());
  }
  if (command.config.device == "cuda") json["host_seconds_per_step"] = result.host_seconds_per_step;
  if (result.best_epoch) json["best_epoch"] = *result.best_epoch;
  if (model.reduction()) json["reduced"] = to_json(*model.reduction());
  return json;
}

std::string result_text(const RunDirectory& directory, const Outcome& outcome) {
  const auto& [result, search_seconds, replaced, memory] = outcome;
  std::string out;
  if (result.ending != Ending::complete) out = fmt::format("stopped after step {}: ", result.steps);
  if (result.skipped > 0) out += fmt::format("{} steps were not finite and are left out: ", result.skipped);
  if (result.best_epoch)
    out += fmt::format("best on the validation set after epoch {}{}: ", *result.best_epoch,
                       result.stopped_early ? ", none better within --patience" : "");
  if (result.test)
    out +=
        fmt::format("test error@1 {:.2f}%, error@5 {:.2f}%, ", result.test->error1(), result.test->error5());
  return out + fmt::format(
                   "{} epochs in {:.1f} s{}, {} of memory; {} {}", result.epochs,
                   result.seconds + search_seconds,
                   search_seconds > 0 ? fmt::format(" ({:.1f} s of it for the search)", search_seconds) : "",
                   memory_text(memory["training"].get<std::int64_t>()),
                   result.best_epoch ? "it is in" : "go on with, or measure,",
                   directory.file(result.best_epoch ? "best.h5" : "checkpoint.h5"));
}

void describe(const Comm& comm, const TrainConfig& config, const Model& model) {
  const Plan& plan = model.plan();
  info("{} on {}: {} of {} shareable parameters (budget {}), {} trainable in all", config.model, config.data,
       grouped(plan.budget), grouped(plan.shareable), config.budget, grouped(plan.total));
  if (model.reduction()) info("{}", text(*model.reduction()));
  info("{}, {} thread(s) each, {}", comm.text(), config.threads, config.device);
}

void end_trace(Comm& comm, const std::string& path, ClockOffset clock) {
  const TraceWritten written = write_trace(comm, path, stop_trace(), clock);
  info("{}: {} spans, {} left out", path, written.events, written.dropped);
}

/// What a run's directory has from the beginning.
void write_description(Comm& comm, const RunDirectory& directory, const Model& model, const Dataset& dataset,
                       const std::string& config_text) {
  directory.write(comm, "config.toml", config_text);
  directory.write(comm, "plan.json", model.plan_json().dump(1) + "\n");
  const auto& pieces = dataset.facts.vocabulary;
  if (!pieces.empty()) directory.write(comm, "vocab.txt", fmt::format("{}\n", fmt::join(pieces, "\n")));
}

/// The rest that ranks must have alike, beside common_options().
std::vector<std::string> call_options(const RunConfig& run) {
  return {fmt::format("--stop-after {} --timeout {}", run.stop_after, run.timeout)};
}

void check_held_out(const TrainConfig& config, const Split& split) {
  check_usage(config.validation == 0 || split.held_out, "train",
              "--validation {}: of {} training samples that is none: raise it", config.validation,
              split.rest->size());
}

RunSize run_size(const Comm& comm, const Dataset& dataset, const Split& split, Device device) {
  const std::int64_t held_out = split.held_out ? split.held_out->size() : 0;
  return {.input = dataset.facts.input,
          .ranks = comm.size(),
          .sums_there = comm.sums_on(device),
          .trained = split.rest->size(),
          .measured = std::max(held_out, dataset.test->size()),
          .saves = true};
}

/// What would be wrong after the search is found before it, unless it depends on the groups that will be
/// found.
void check_before_search(const TrainConfig& config, const RunSize& size, Device device) {
  TrainConfig trial = config;
  if (config.baseline == "none") trial.mapping = name_of(MappingKind::random);
  const Budget budget = Budget::parse(config.budget);
  const bool total = config.count == name_of(Count::total) &&
                     (budget.kind() == Budget::Kind::share || budget.kind() == Budget::Kind::absolute);
  if (total) trial.budget = "largest", trial.count = name_of(Count::groups);
  if (config.inter == name_of(Inter::ref)) trial.inter = name_of(Inter::aspect);
  const Model model(trial, size.input, device);
  choose_recompute(trial, size);
  const Plan& plan = model.plan();
  const std::int64_t least = plan.original - plan.shareable + config.groups;
  check_usage(
      !total || budget.resolve(plan.original) >= least, "train",
      "--count total --budget {}: that is too few whatever the groups; norms and biases and a parameter "
      "a group are {}",
      config.budget, grouped(least));
}

/// Of a rank's tensors, in bytes.
struct Memory {
  Device device = Device::cpu;  // whose memory the training takes
  std::int64_t data = 0;        // the CPU's before the training: the data set's, and what else there was
  std::int64_t before = 0;      // the device's before it
  std::int64_t predicted = 0;   // training_memory()
  Recompute recompute = {};
};

/// What the training will take.
Memory plan_memory(const TrainConfig& config, const RunSize& size, Recompute recompute) {
  Memory memory{.device = device_of(config),
                .predicted = training_memory(config, size, recompute),
                .recompute = std::move(recompute)};
  for (const Device device : {Device::cpu, memory.device}) trim_pool(device);
  memory.data = static_cast<std::int64_t>(pool_stats(Device::cpu).held);
  memory.before = static_cast<std::int64_t>(pool_stats(memory.device).held);
  const std::size_t recomputed = memory.recompute.segments().size();
  info("a rank's training takes {} of {}, beside {} of data{}", memory_text(memory.predicted),
       memory.device == Device::cuda ? "its GPU's memory" : "memory", memory_text(memory.data),
       recomputed == 0 ? ""
                       : fmt::format("; {} of {} segments are recomputed", recomputed,
                                     network_segments(config, size.input).size()));
  return memory;
}

/// The most that a rank took.
Json memory_json(Comm& comm, const Memory& memory) {
  const auto held = static_cast<std::int64_t>(pool_stats(memory.device).held);
  const auto most = [&](std::int64_t bytes) {
    const std::vector<std::int64_t> all = comm.allgather(bytes);
    return *std::max_element(all.begin(), all.end());
  };
  return {{"training", most(held - memory.before)},
          {"predicted", memory.predicted},
          {"data", most(memory.data)},
          {"process_peak", most(process_peak())}};
}

/// --init
void start_from_weights(Comm& comm, Model& model, const TrainConfig& config) {
  on_root(comm, [&] {
    const auto take = [&](Model& to) {
      const Taken taken = take_weights(to, config.model, config.init, WeightLayout::oihw);
      info("{}", text(taken, to.plan(), config.init));
    };
    if (model.parameters.device() == Device::cpu) return take(model);
    Model host(config, model.input(), Device::cpu);  // where weights are read and fitted
    SoloComm alone;
    host.build(alone);
    take(host);
    model.parameters.values().copy_from(host.parameters.values());
    copy_all(statistics(host.parameters), statistics(model.parameters));
  });
  comm.broadcast(model.parameters.values());
  for (const Parameters::Buffer& buffer : model.parameters.buffers()) comm.broadcast(buffer.tensor);
  model.parameters.values_changed();
}

/// Returns the seconds it took.
double search(Comm& comm, TrainConfig& config, const Dataset& dataset, const Samples& set,
              const RunDirectory& directory) {
  Search found = search_mapping(comm, config, dataset, set);
  directory.write(comm, "mapping.json", mapping_text(found.mapping));
  info("search: {}\n  kept in {}", groups_text(found), directory.file("mapping.json"));
  check(!found.stopped, "search", "stopped by a signal before the training: start it with --mapping {}",
        directory.file("mapping.json"));
  config.search_threads = found.threads;
  config.labels = std::move(found.labels);
  return found.seconds;
}

/// Text goes on with the same vocabulary, whatever has become of the file.
Dataset load_data(Comm& comm, const TrainCommand& command) {
  DatasetOptions options = dataset_options(comm, command.config, command.options);
  if (command.checkpoint && stored_facts(*command.checkpoint).input.length > 0)
    options.facts = stored_facts(*command.checkpoint);
  return load_dataset(command.config.data, options);
}

}  // namespace

int train(Comm& comm, const Arguments& arguments) {
  TrainCommand command;
  auto& [config, run, options, checkpoint] = command;
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  set_log({.rank = comm.rank(), .quiet = run.quiet});
  comm.set_timeout(run.timeout);
  if (!run.resume.empty()) take_up(command, arguments);
  check_alike(comm, common_options(options, call_options(run)));
  const Device device = choose_device(comm, config.device);
  check_precision(config);
  ClockOffset clock;
  if (!run.trace.empty()) clock = comm.clock_offset(), start_trace();

  const Dataset dataset = load_data(comm, command);
  use_defaults_of(dataset, options, config);
  const Split split = hold_out(dataset.train, config.validation, static_cast<std::uint64_t>(config.seed));
  check_held_out(config, split);
  check_parts(comm, config, split.rest->size());
  const RunSize size = run_size(comm, dataset, split, device);
  const bool searches = !checkpoint && learns_mapping(config);
  if (!checkpoint) read_mapping_file(comm, config);
  std::optional<Model> model;
  Recompute recompute;
  const auto make_model = [&, &config = config] {
    model.emplace(config, dataset.facts.input, device);
    recompute = choose_recompute(config, size);
  };
  searches ? check_before_search(config, size, device) : make_model();
  check_alike(comm, common_options(options, common_data(dataset)));
  const RunDirectory directory(comm, {run.out, run.resume, config.model, config.mapping, run.overwrite});
  double search_seconds = 0;
  if (searches) {
    search_seconds = search(comm, config, dataset, split.rest, directory);
    make_model();
  }
  const std::int64_t part = config.batch / (comm.size() * parts_of_rank(config, comm.size()));
  choose_threads(comm, config.threads, useful_threads(model->plan(), dataset.facts.input, part));
  choose_wire(comm, config);
  describe(comm, config, *model);
  const Memory memory = plan_memory(config, size, std::move(recompute));
  model->build(comm);
  if (!checkpoint && !config.init.empty()) start_from_weights(comm, *model, config);
  const std::string config_text = options.to_toml();
  Trainer trainer(comm, *model,
                  {config, dataset, split.rest, split.held_out, memory.recompute, &directory, config_text,
                   options.command_line(), run.stop_after, search_seconds});
  if (checkpoint) {
    trainer.resume(*checkpoint, run.resume);
    directory.take_over(comm, run.resume);
  }
  checkpoint.reset();
  if (!run.trace.empty())
    on_root(comm, [&, &run = run] { atomic_write_text(run.trace, ""); });  // finds out now if not
  write_description(comm, directory, *model, dataset, config_text);

  const TrainResult result = trainer.run();
  if (!run.trace.empty()) end_trace(comm, run.trace, clock);
  const Outcome outcome{result, search_seconds, count_replaced(comm, dataset), memory_json(comm, memory)};
  print_result(comm, run.json ? result_json(comm, command, *model, directory, outcome).dump()
                              : result_text(directory, outcome));
  return result.ending == Ending::signal ? kStopped : 0;
}

}  // namespace ssn
