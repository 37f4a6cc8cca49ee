#include "runtime/log.h"
#include "tools/commands.h"
#include "tools/training/search.h"

namespace ssn {
namespace {

using Json = nlohmann::ordered_json;

struct MapCommand {
  TrainConfig config;
  std::string out = "mapping.json";
  bool overwrite = false, json = false, quiet = false;
  Options options{
      "ssn map",
      "Learns which layers should share parameters, by a short training in which all share, and writes a\n"
      "mapping file. Of the options for sharing, --combine wavg (compare the layers' coefficients instead "
      "of\n"
      "embeddings) and --gain on matter here; the others are for the training to come.",
      "ssn map --model wrn-28-10 --data cifar100:DIR --groups 14"};

  MapCommand() {
    add_network_options(options, config);
    add_training_options(options, config);
    options.section("This call")
        .add("softmax", config.softmax, "of the coefficients in the search, as in the published code")
        .add("out", out, "FILE", "the mapping file to write")
        .flag_only()
        .add("overwrite", overwrite, "replace the file that is there")
        .flag_only()
        .add("json", json, "print the result as one JSON object")
        .flag_only()
        .add("quiet", quiet, "no progress on stderr")
        .flag_only();
  }
};

/// "1 (0.83)": the group, other than the layer's own, with the nearest centre, and how far that is.
std::string nearest_other(const Json& distances, int own) {
  int nearest = -1;
  for (int g = 0; g < static_cast<int>(distances.size()); ++g)
    if (g != own && (nearest < 0 || distances[g] < distances[nearest])) nearest = g;
  return fmt::format("{} ({:.3f})", nearest, distances[nearest].get<double>());
}

/// A line a layer, in the order of the groups.
std::string table(const Json& mapping, const Plan& plan) {
  const Json& notes = mapping["notes"];
  const bool trained = notes.contains("centre_distances");
  std::size_t width = 5;
  for (const PlannedLayer& layer : plan.layers) width = std::max(width, layer.name.size());
  std::string out = fmt::format("group  {:<{}}  {:<11}  {:>14}", "layer", width, "kind", "shape");
  if (trained) out += "  to its centre  nearest other group";
  for (int g = 0; g < notes["groups"].get<int>(); ++g) {
    for (const PlannedLayer& layer : plan.layers) {
      if (mapping[layer.name] != g) continue;
      out += fmt::format("\n{:>5}  {:<{}}  {:<11}  {:>14}", g, layer.name, width, name_of(layer.kind),
                         layer.shape.text());
      if (!trained) continue;
      const Json& distances = notes["centre_distances"][layer.name];
      out += fmt::format("  {:>13.3f}  {:>19}", distances[g].get<double>(), nearest_other(distances, g));
    }
  }
  return out;
}

std::string result_text(const Search& search, const Plan& plan, const std::string& path) {
  const Json& notes = search.mapping["notes"];
  const std::string how =
      search.threads == 0
          ? "no search was needed"
          : fmt::format("found in {:.1f} s ({} epoch(s), test error@1 {:.2f}%)", search.seconds,
                        notes["epochs"].get<std::int64_t>(), notes["test_error1"].get<double>());
  return fmt::format(
      "{}\n\n{} group(s): {}; written to {}\ntrain with them: ssn train --model {} --data {} --mapping {}",
      table(search.mapping, plan), notes["groups"].get<int>(), how, path, notes["network"].get<std::string>(),
      notes["data"].get<std::string>(), path);
}

Json result_json(const Search& search, const std::string& path) {
  Json json = {{"file", path}, {"search_seconds", rounded(search.seconds)}, {"mapping", search.mapping}};
  json["notes"] = json["mapping"]["notes"];
  json["mapping"].erase("notes");
  return json;
}

}  // namespace

int map(Comm& comm, const Arguments& arguments) {
  MapCommand command;
  auto& [config, out, overwrite, json, quiet, options] = command;
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  set_log({.rank = comm.rank(), .quiet = quiet});
  check_usage(config.groups >= 1, "map", "how many groups? Give --groups P");
  check_usage(config.baseline == "none", "map", "--baseline {} has no groups to be found: leave it out",
              config.baseline);
  choose_device(comm, config.device);
  check_precision(config);
  check_output(comm, out, overwrite);

  const Dataset dataset = load_dataset(config.data, dataset_options(comm, config, options));
  use_defaults_of(dataset, options, config);
  const Split split = hold_out(dataset.train, config.validation, static_cast<std::uint64_t>(config.seed));
  SoloComm alone;
  check_parts(alone, config, split.rest->size());
  const Search search = search_mapping(comm, config, dataset, split.rest);
  count_replaced(comm, dataset);
  on_root(comm, [&, &out = out] { atomic_write_text(out, mapping_text(search.mapping)); });
  const Model model(search_config(config), dataset.facts.input, Device::cpu);
  print_result(comm, json ? result_json(search, out).dump() : result_text(search, model.plan(), out));
  return 0;
}

}  // namespace ssn
