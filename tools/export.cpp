#include <filesystem>

#include "runtime/progress.h"
#include "runtime/safetensors.h"
#include "tools/commands.h"
#include "tools/exchange/dense.h"
#include "tools/training/older.h"

namespace ssn {
namespace {

struct ExportCommand {
  std::string path, out;
  std::string format, names = "torch", layout = "oihw";
  bool overwrite = false, json = false;
  Options options{"ssn export",
                  "Writes the weights that a checkpoint's layers use, generated once, with norms, biases and "
                  "running statistics (their averages, if the run kept them), for programs that know nothing "
                  "of sharing.",
                  "ssn export runs/mine/checkpoint.h5 weights.safetensors"};

  ExportCommand() {
    options.positional("CKPT", path, "the checkpoint")
        .positional("OUT", out, "the file to write")
        .add("format", format, "NAME", "kind of file: h5 or safetensors")
        .show_default("as OUT ends: .safetensors, otherwise h5")
        .add("names", names, "WHOSE",
             "names of the tensors: those of PyTorch's networks (torchvision, transformers), or "
             "weights/<layer>, parameters/<name>, statistics/<name>",
             names_of<TensorNames>())
        .add("layout", layout, "ORDER",
             "axes of the weights: oihw as PyTorch (output, input, height, width; output, input), hwio as "
             "TensorFlow and JAX (height, width, input, output; input, output)",
             names_of<WeightLayout>())
        .add("overwrite", overwrite, "replace the file that is there")
        .flag_only()
        .add("json", json, "print the result as one JSON object")
        .flag_only();
  }
  bool safetensors() const { return format == "safetensors"; }
};

void check_options(ExportCommand& c) {
  std::error_code error;
  check_usage(!std::filesystem::equivalent(c.path, c.out, error), "export",
              "{} is the checkpoint itself: give another name", c.out);
  if (c.format.empty()) c.format = c.out.ends_with(".safetensors") ? "safetensors" : "h5";
  check_usage(c.safetensors() || c.format == "h5", "export", "--format {}: expected h5 or safetensors",
              c.format);
}

/// What another program needs to compute as the network does, without knowing how weights are generated.
Archive exported(Model& model, const TrainConfig& config, const Archive& checkpoint, const ExportCommand& c) {
  Archive out = dense_weights(model, config.model, value_named<TensorNames>(c.names),
                              value_named<WeightLayout>(c.layout));
  for (const auto& [name, value] : checkpoint.attributes)
    if (!name.starts_with("trainer/")) out.attributes[name] = value;
  for (const auto& [name, value] : checkpoint.tensors) {
    if (!name.starts_with("data/")) continue;
    if (c.safetensors()) {  // whose readers expect the network's tensors and nothing else
      const auto bytes = value.span<std::uint8_t>();
      out.attributes[name] = std::string(bytes.begin(), bytes.end());
    } else {
      out.tensors[name] = value;
    }
  }
  out.attributes["layout"] = c.layout;
  if (c.safetensors()) out.attributes["format"] = "pt";  // what transformers asks for
  return out;
}

}  // namespace

int export_weights(Comm& comm, const Arguments& arguments) {
  ExportCommand command;
  if (!command.options.parse(arguments)) return print_result(comm, command.options.help()), 0;
  check_options(command);
  const std::string &path = command.path, &out = command.out;
  check_output(comm, out, command.overwrite);

  const Archive archive = load_run(path);
  TrainConfig config = stored_config(archive, path);
  config.weights = name_of(WeightPolicy::eager);
  Model model = stored_model(archive, config, stored_facts(archive).input, Device::cpu);
  check_plan(model, archive);
  model.build(comm);
  restore_for_use(model, archive);
  const Archive result = exported(model, config, archive, command);
  on_root(comm,
          [&] { command.safetensors() ? write_safetensors(out, result) : save_checkpoint(out, result); });

  const std::size_t weights = model.plan().layers.size();
  std::int64_t elements = 0;
  for (const PlannedLayer& layer : model.plan().layers) elements += layer.size();
  if (command.json) {
    print_result(comm, nlohmann::ordered_json{{"network", config.model},
                                              {"checkpoint", path},
                                              {"file", out},
                                              {"format", command.format},
                                              {"names", command.names},
                                              {"layout", command.layout},
                                              {"weights", weights},
                                              {"elements", elements}}
                           .dump());
  } else {
    print_result(comm, fmt::format("{}: {} weights of {} with {} elements, generated from {} parameters", out,
                                   weights, config.model, grouped(elements), grouped(model.plan().budget)));
  }
  return 0;
}

}  // namespace ssn
