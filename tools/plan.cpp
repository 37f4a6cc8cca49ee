#include <algorithm>
#include <nlohmann/json.hpp>

#include "ssn/report.h"
#include "tools/commands.h"
#include "tools/training/memory.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

/// What the command finds out.
struct Described {
  const TrainConfig& config;
  const InputShape& input;
  const Model& model;
  Cost costs;
  Work work;
  const Recompute& recompute;
  std::int64_t memory;  // bytes that training takes
};

nlohmann::json plan_json(const Described& d) {
  nlohmann::json out = d.model.plan_json();
  out["memory"] = {{"training", d.memory}, {"recomputed", d.recompute.segments()}};
  out["network"] = d.config.model;
  if (d.input.length > 0) {
    out["length"] = d.input.length, out["vocabulary"] = d.input.vocabulary;
  } else {
    out["input"] = d.input.size.text(), out["classes"] = d.input.classes;
  }
  out["bytes"] = to_json(d.costs);
  out["flops"] = to_json(d.work);
  return out;
}

std::string plan_text(const Described& d, int ranks) {
  const Plan& plan = d.model.plan();
  std::string out = fmt::format("{} for {}{}\n", d.config.model, d.input.text(),
                                d.config.input.empty() ? fmt::format(" ({})", d.config.data) : "");
  if (d.model.reduction()) out += text(*d.model.reduction()) + "\n";
  out += fmt::format("\n{}\n{}\n{}", text(plan), text(d.costs), text(d.work));
  out += fmt::format(
      "\n{:>16} of memory for training with {} samples a step on {} rank(s), a rank, beside the data\n",
      memory_text(d.memory), d.config.batch, ranks);
  if (!d.recompute.segments().empty())
    out += fmt::format("{:>16} recomputed: {}\n", "", fmt::join(d.recompute.segments(), ", "));
  const std::string lines = advice(plan, d.costs, d.work);
  if (!lines.empty()) out += "\n" + lines;
  out.pop_back();
  return out;
}

}  // namespace

int plan(Comm& comm, const Arguments& arguments) {
  TrainConfig config;
  bool json = false;
  std::int64_t classes = 0;
  Options options("ssn plan",
                  "Shows which parameters would make which weights, and what it costs. Reads no data.",
                  "ssn plan --model wrn-28-10 --data cifar100:DIR --budget 4M");
  add_network_options(options, config);
  options.add("classes", classes, "N", "classes", at_least(0)).flag_only().show_default("of the data");
  add_training_options(options, config);
  options.section("This call").add("json", json, "print one JSON object").flag_only();
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;

  check_precision(config);
  check_usage(
      !learns_mapping(config), "plan",
      "--mapping learned: the groups are not known before the search; run ssn map, and give the file it "
      "writes as --mapping");
  read_mapping_file(comm, config);
  const KnownSet known = known_set(config.data, dataset_options(comm, config, options)).value_or(KnownSet{});
  if (!options.given("batch") && known.samples > 0) config.batch = usual_batch(known.samples);
  const InputShape input = planned_input(config, known, classes);
  const Model model(config, input, Device::cpu);
  const Plan& plan = model.plan();
  const Cost costs = cost(plan, states_of(value_named<OptimizerKind>(config.optimizer)) + (config.ema > 0));
  const NetworkTask task = task_of(input);
  const NetworkSize size = model.reduction() ? model.reduction()->size : NetworkSize{};
  const std::int64_t samples =
      std::max<std::int64_t>(1, config.batch / (comm.size() * parts_of_rank(config, comm.size())));
  const Work works =
      work(plan, forward_flops(config.model, task, size), samples, input.length > 0 ? "sequence" : "image");
  const RunSize run{.input = input,
                    .ranks = comm.size(),
                    .trained = known.samples > 0 ? known.samples : RunSize::kUnknown,
                    .saves = true};
  const Recompute recompute = choose_recompute(config, run);
  const Described described{
      config, input, model, costs, works, recompute, training_memory(config, run, recompute)};
  print_result(comm, json ? plan_json(described).dump(1) : plan_text(described, comm.size()));
  return 0;
}

}  // namespace ssn
