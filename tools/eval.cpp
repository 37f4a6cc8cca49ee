#include <nlohmann/json.hpp>

#include "runtime/log.h"
#include "runtime/parallel.h"
#include "tools/commands.h"
#include "tools/exchange/logits.h"
#include "tools/training/older.h"
#include "tools/training/trainer.h"

namespace ssn {
namespace {

struct EvalCommand {
  std::string path, data, logits, device = "auto";
  std::int64_t batch = 128, threads = 0, decoders = 0;
  bool json = false, quiet = false, skip_bad = false;
  Options options{"ssn eval", "Measures a checkpoint on a test set.",
                  "ssn eval runs/mine/checkpoint.h5 --data cifar10:DIR"};

  EvalCommand() {
    options.positional("CKPT", path, "the checkpoint to measure")
        .add("data", data, "NAME[:PATH]", "data set")
        .show_default("the one it was trained on")
        .add("logits", logits, "FILE",
             "write what the network read and gave, as HDF5: inputs, logits and labels, all in memory first; "
             "on one rank")
        .add("batch", batch, "N", "samples at a time, over all ranks", between(1, 1 << 30))
        .add("device", device, "NAME", "where to compute", {"auto", "cpu", "cuda"})
        .add("threads", threads, "N", "threads of each rank", between(0, kMostThreads))
        .show_default("OMP_NUM_THREADS, or the rank's share of the cores");
    add_reading_options(options, decoders, skip_bad);
    options.add("json", json, "print the result as one JSON object")
        .flag_only()
        .add("quiet", quiet, "nothing but the result and warnings")
        .flag_only();
  }
};

Metrics measure(Comm& comm, Model& model, const Loader& loader, const std::string& logits) {
  if (logits.empty()) return evaluate(comm, model, loader);
  LogitsFile file;
  const Metrics metrics = evaluate(comm, model, loader, 1,
                                   [&](const Batch& batch, const Tensor& given) { file.add(batch, given); });
  file.write(logits);
  return metrics;
}

}  // namespace

int eval(Comm& comm, const Arguments& arguments) {
  EvalCommand command;
  auto& [path, data, logits, device, batch, threads, decoders, json, quiet, skip_bad, options] = command;
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  set_log({.rank = comm.rank(), .quiet = quiet});
  check_usage(logits.empty() || comm.size() == 1, "eval", "--logits: one rank writes them, found {}",
              comm.size());
  if (!logits.empty()) check_output(comm, logits, true);

  const Archive archive = load_run(path);
  TrainConfig config = stored_config(archive, path);
  config.weights = name_of(WeightPolicy::eager);  // generated once
  const DataFacts facts = stored_facts(archive);
  const InputShape& input = facts.input;
  Model model = stored_model(archive, config, input, choose_device(comm, device));
  choose_threads(comm, threads, useful_threads(model.plan(), input, batch / comm.size()));
  check_plan(model, archive);
  model.build(comm);
  restore_for_use(model, archive);

  if (data.empty()) data = config.data;
  const Dataset dataset = load_dataset(data, {.seed = static_cast<std::uint64_t>(config.seed),
                                              .threads = data_threads(comm, decoders),
                                              .facts = facts,
                                              .skip_bad = skip_bad});
  check_usage(dataset.facts.input == input, "eval", "the network reads {}, {} has {}", input.text(), data,
              dataset.facts.input.text());
  const Metrics metrics =
      measure(comm, model, Loader(dataset.test, {.batch = batch, .training = false}), logits);
  const std::int64_t replaced = count_replaced(comm, dataset);
  if (json) {
    const nlohmann::ordered_json out = {{"network", config.model},
                                        {"data", data},
                                        {"checkpoint", path},
                                        {"ranks", comm.size()},
                                        {"samples", static_cast<std::int64_t>(metrics.samples())},
                                        {"test_error1", rounded(metrics.error1())},
                                        {"test_error5", rounded(metrics.error5())},
                                        {"test_loss", rounded(metrics.loss())},
                                        {"replaced_samples", replaced}};
    print_result(comm, out.dump());
  } else {
    print_result(comm, fmt::format("{} on {}: error@1 {:.2f}%, error@5 {:.2f}%, loss {:.4f} ({} predictions)",
                                   config.model, data, metrics.error1(), metrics.error5(), metrics.loss(),
                                   metrics.samples()));
  }
  return 0;
}

}  // namespace ssn
