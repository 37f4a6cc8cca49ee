#include <filesystem>

#include "runtime/progress.h"
#include "tools/commands.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

/// What another program needs to compute as the network does, without knowing how weights are generated.
Archive exported(Model& model, const Archive& checkpoint) {
  const NoGrad no_grad;
  Archive out;
  const std::vector<PlannedLayer>& layers = model.plan().layers;
  for (std::size_t i = 0; i < layers.size(); ++i)
    out.tensors["weights/" + layers[i].name] = model.weights.use(static_cast<int>(i)).value();
  for (const Parameters::Entry& entry : model.parameters.entries())
    if (entry.section == Section::ordinary) out.tensors["parameters/" + entry.name] = entry.leaf.value();
  for (const Parameters::Buffer& buffer : model.parameters.buffers())
    out.tensors["statistics/" + buffer.name] = buffer.tensor;
  for (const auto& [name, value] : checkpoint.tensors)
    if (name.starts_with("data/")) out.tensors[name] = value;
  for (const auto& [name, value] : checkpoint.attributes)
    if (!name.starts_with("trainer/")) out.attributes[name] = value;
  return out;
}

}  // namespace

int export_weights(Comm& comm, const Arguments& arguments) {
  std::string path, out;
  bool overwrite = false, json = false;
  Options options("ssn export",
                  "Writes a checkpoint's weights, generated once, with the ordinary parameters, the running "
                  "statistics and the attributes that say what they are, as an HDF5 file for other programs.",
                  "ssn export runs/mine/checkpoint.h5 weights.h5");
  options.positional("CKPT", path, "the checkpoint")
      .positional("OUT", out, "the HDF5 file to write")
      .add("overwrite", overwrite, "replace the file that is there")
      .flag_only()
      .add("json", json, "print the result as one JSON object")
      .flag_only();
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  std::error_code error;
  check_usage(!std::filesystem::equivalent(path, out, error), "export",
              "{} is the checkpoint itself: give another name", out);
  check_output(comm, out, overwrite);

  const Archive archive = load_checkpoint(path);
  TrainConfig config = stored_config(archive, path);
  config.weights = name_of(WeightPolicy::eager);
  Model model(config, stored_facts(archive).input, Device::cpu);
  model.build(comm);
  restore_for_use(model, archive);
  const Archive result = exported(model, archive);
  on_root(comm, [&] { save_checkpoint(out, result); });

  const std::size_t weights = model.plan().layers.size();
  std::int64_t elements = 0;
  for (const PlannedLayer& layer : model.plan().layers) elements += layer.size();
  if (json) {
    print_result(comm, nlohmann::ordered_json{{"network", config.model},
                                              {"checkpoint", path},
                                              {"file", out},
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
