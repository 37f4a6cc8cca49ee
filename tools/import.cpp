#include <nlohmann/json.hpp>

#include "runtime/log.h"
#include "tools/commands.h"
#include "tools/exchange/take_weights.h"

namespace ssn {
namespace {

struct ImportCommand {
  TrainConfig config;
  std::string path, out, layout = "oihw";
  bool overwrite = false, json = false, quiet = false;
  Options options{
      "ssn import",
      "Makes a checkpoint of a network's weights from elsewhere: HDF5, safetensors or NumPy's npz, under "
      "PyTorch's names or those of ssn export, or another checkpoint. With a budget, the shared parameters "
      "are fitted to them. ssn eval measures the result, ssn train --init starts from it.",
      "ssn import resnet18.safetensors start.h5 --model resnet-18 --data folder:imagenet --budget 25%"};

  ImportCommand() {
    config.budget = "dense";
    options.positional("FILE", path, "the weights")
        .positional("OUT", out, "the checkpoint to write")
        .add("layout", layout, "ORDER", "axes of the file's weights, where it does not say (see ssn export)",
             names_of<WeightLayout>())
        .flag_only();
    add_network_options(options, config);
    options.section("This run")
        .add("seed", config.seed, "N", "of what the file does not decide: mapping and coefficients",
             at_least(0))
        .add("overwrite", overwrite, "replace the file that is there")
        .flag_only()
        .add("json", json, "print the result as one JSON object")
        .flag_only()
        .add("quiet", quiet, "nothing but the result and warnings")
        .flag_only();
  }
};

nlohmann::ordered_json json_of(const ImportCommand& c, const Model& model, const Taken& taken) {
  nlohmann::ordered_json out = {
      {"network", c.config.model},     {"file", c.path},
      {"checkpoint", c.out},           {"tensors", taken.tensors},
      {"budget", model.plan().budget}, {"relative_error", taken.root_mean_square()}};
  const std::vector<PlannedLayer>& layers = model.plan().layers;
  for (std::size_t i = 0; i < layers.size(); ++i)
    out["layers"].push_back(
        {{"name", layers[i].name}, {"group", layers[i].group}, {"relative_error", taken.errors[i]}});
  return out;
}

}  // namespace

int import_weights(Comm& comm, const Arguments& arguments) {
  ImportCommand command;
  auto& [config, path, out, layout, overwrite, json, quiet, options] = command;
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  set_log({.rank = comm.rank(), .quiet = quiet});
  check_usage(comm.size() == 1, "import", "it is the work of one rank, found {}", comm.size());
  check_usage(config.mapping != name_of(MappingKind::learned), "import",
              "--mapping learned: give the file that ssn map, or the search of a training, wrote");
  check_output(comm, out, overwrite);
  read_mapping_file(comm, config);
  const Dataset dataset = load_dataset(config.data, dataset_options(comm, config));
  Model model(config, dataset.facts.input, Device::cpu);
  model.build(comm);
  const Taken taken = take_weights(model, config.model, path, value_named<WeightLayout>(layout));
  Archive archive;
  store_model(model, dataset.facts, options.to_toml(), archive);
  save_checkpoint(out, archive);
  print_result(comm, json ? json_of(command, model, taken).dump() : text(taken, model.plan(), path));
  return 0;
}

}  // namespace ssn
