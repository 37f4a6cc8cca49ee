#include <nlohmann/json.hpp>

#include "ssn/report.h"
#include "tools/commands.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

/// The network's input: of the data, unless flags say otherwise.
InputShape input_of(const TrainConfig& config, std::int64_t classes) {
  const std::optional<InputShape> known = known_input_shape(config.data);
  InputShape input = known.value_or(InputShape{});
  if (!config.input.empty()) input.size = ImageSize::parse(config.input);
  if (classes > 0) input.classes = classes;
  check_usage(input.size.channels > 0 && input.classes > 0, "plan",
              "only the files tell the shape of {}: give --input CxHxW and --classes N", config.data);
  return input;
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

  const Model model(config, input_of(config, classes), Device::cpu);
  const Cost costs = cost(model.plan());
  if (json) {
    nlohmann::json out = to_json(model.plan());
    out["network"] = config.model;
    out["input"] = model.input().size.text();
    out["classes"] = model.input().classes;
    out["bytes"] = to_json(costs);
    print_result(comm, out.dump(1));
  } else {
    print_result(
        comm, fmt::format("{} for {} images, {} classes\n\n{}\n{}", config.model, model.input().size.text(),
                          model.input().classes, text(model.plan()), text(costs)));
  }
  return 0;
}

}  // namespace ssn
