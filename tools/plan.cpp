#include <algorithm>
#include <nlohmann/json.hpp>

#include "ssn/report.h"
#include "tools/commands.h"
#include "tools/training/memory.h"
#include "tools/training/task.h"

namespace ssn {

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
  const std::int64_t memory = training_memory(config, run, recompute);
  if (json) {
    nlohmann::json out = model.plan_json();
    out["memory"] = {{"training", memory}, {"recomputed", recompute.segments()}};
    out["network"] = config.model;
    if (input.length > 0) {
      out["length"] = input.length, out["vocabulary"] = input.vocabulary;
    } else {
      out["input"] = input.size.text(), out["classes"] = input.classes;
    }
    out["bytes"] = to_json(costs);
    out["flops"] = to_json(works);
    print_result(comm, out.dump(1));
    return 0;
  }
  std::string out = fmt::format("{} for {}{}\n", config.model, input.text(),
                                config.input.empty() ? fmt::format(" ({})", config.data) : "");
  if (model.reduction()) out += text(*model.reduction()) + "\n";
  out += fmt::format("\n{}\n{}\n{}", text(plan), text(costs), text(works));
  out += fmt::format(
      "\n{:>16} of memory for training with {} samples a step on {} rank(s), a rank, beside the data\n",
      memory_text(memory), config.batch, comm.size());
  if (!recompute.segments().empty())
    out += fmt::format("{:>16} recomputed: {}\n", "", fmt::join(recompute.segments(), ", "));
  const std::string lines = advice(plan, costs, works);
  if (!lines.empty()) out += "\n" + lines;
  out.pop_back();
  print_result(comm, out);
  return 0;
}

}  // namespace ssn
