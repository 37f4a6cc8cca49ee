#include "tools/training/search.h"

#include <chrono>
#include <cmath>

#include "runtime/binding.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/trace.h"
#include "ssn/kmeans.h"
#include "tools/training/trainer.h"

namespace ssn {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kTemplates = 4;

/// Short enough to read, and exact enough to compare.
double short_number(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

/// What the preliminary training learned of each layer: (layers, dim).
std::vector<double> representations(const Model& model) {
  std::vector<double> all;
  const bool embedded = model.plan().options.combine == Combine::emb;
  for (const PlannedLayer& layer : model.plan().layers) {
    const Var& learned = model.parameters.entry(layer.name + (embedded ? ".phi" : ".alpha")).leaf;
    const Tensor host = learned.value().to(Device::cpu);
    all.insert(all.end(), host.span<float>().begin(), host.span<float>().end());
  }
  return all;
}

Json rows_json(const Points& points) {
  Json rows = Json::array();
  for (int i = 0; i < points.count(); ++i) {
    Json row = Json::array();
    // The shortest number that is the float.
    for (const double value : points.row(i))
      row.push_back(std::stod(fmt::format("{}", static_cast<float>(value))));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json distances_json(const Points& from, const Points& to) {
  Json rows = Json::array();
  for (int i = 0; i < from.count(); ++i) {
    Json row = Json::array();
    for (int j = 0; j < to.count(); ++j)
      row.push_back(short_number(std::sqrt(squared_distance(from.row(i), to.row(j)))));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// {layer: row} instead of rows.
Json by_layer(const Plan& plan, const Json& rows) {
  Json out = Json::object();
  for (std::size_t i = 0; i < plan.layers.size(); ++i) out[plan.layers[i].name] = rows[i];
  return out;
}

struct Found {
  std::vector<int> labels;  // of the layers
  Json notes = Json::object();
};

/// What needs no training.
Found trivial_groups(int layers, int groups) {
  Found found{std::vector<int>(static_cast<std::size_t>(layers))};
  for (int i = 0; groups > 1 && i < layers; ++i) found.labels[i] = i;
  return found;
}

Found train_and_cluster(Model& model, const TrainConfig& config, const Dataset& dataset, const Samples& set,
                        int groups) {
  SoloComm solo;
  const int threads = num_threads();
  set_num_threads(static_cast<int>(config.threads));
  info("search for {} groups: {} layers share {} parameters for {} epoch(s), {} thread(s)", groups,
       model.plan().layers.size(), grouped(model.plan().budget), config.epochs, config.threads);
  model.build(solo);
  const Recompute recompute = choose_recompute(
      config, {.input = model.input(), .trained = set->size(), .measured = dataset.test->size()});
  const TrainResult result =
      Trainer(solo, model,
              {.config = config, .dataset = dataset, .train = set, .validation = {}, .recompute = recompute})
          .run();
  set_num_threads(threads);
  check(result.ending == Ending::complete && !StopSignals::arrived(), "search",
        "stopped by a signal before the groups were known: there is no checkpoint, start again");

  const std::vector<double> values = representations(model);
  const Points points{values, std::ssize(values) / std::ssize(model.plan().layers)};
  const std::vector<double> placed = config.near > 0 ? with_places(points, config.near) : values;
  const Points clustered{placed, std::ssize(placed) / points.count()};
  const Clusters clusters = kmeans(clustered, groups, static_cast<std::uint64_t>(config.seed));
  Found found{clusters.labels};
  found.notes = {{"test_error1", rounded(result.test->error1())},
                 {"train_error1", rounded(result.train->error1())},
                 {"inertia", short_number(clusters.inertia)},
                 {"representations", by_layer(model.plan(), rows_json(points))},
                 {"centre_distances",
                  by_layer(model.plan(), distances_json(clustered, {clusters.centers, clustered.dim}))},
                 {"distances", distances_json(points, points)}};
  return found;
}

Json mapping_json(const TrainConfig& config, const TrainConfig& searched, const Plan& plan, Found found) {
  Json mapping = Json::object();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    names.push_back(plan.layers[i].name);
    mapping[names.back()] = found.labels[i];
  }
  const bool trained = !found.notes.empty();
  const int groups = 1 + *std::max_element(found.labels.begin(), found.labels.end());
  Json& notes = mapping["notes"] = {{"network", config.model},
                                    {"data", config.data},
                                    {"groups", groups},
                                    {"seed", config.seed},
                                    {"epochs", trained ? searched.epochs : 0},
                                    {"threads", trained ? searched.threads : 0},
                                    {"combine", searched.combine},
                                    {"softmax", searched.softmax},
                                    {"near", searched.near},
                                    {"layers", names}};
  notes.update(found.notes);
  return mapping;
}

/// What rank 0 does.
Json search_alone(const TrainConfig& config, const Dataset& dataset, const Samples& set) {
  TrainConfig searched = search_config(config);
  Model model(searched, dataset.facts.input, device_of(searched));
  searched.threads = search_threads_of(config, model.plan(), dataset.facts.input);
  const int layers = static_cast<int>(model.plan().layers.size()), groups = static_cast<int>(config.groups);
  check_usage(groups >= 1 && groups <= layers, "search",
              "--groups {}: {} has {} layers, and each group needs one", groups, config.model, layers);
  if (groups == 1 || groups == layers)
    return mapping_json(config, searched, model.plan(), trivial_groups(layers, groups));
  return mapping_json(config, searched, model.plan(),
                      train_and_cluster(model, searched, dataset, set, groups));
}

/// The innermost containers have a line each.
std::string lines_of(const Json& json, const std::string& indent) {
  const auto has_parts = [](const Json& j) {
    return std::any_of(j.begin(), j.end(), [](const Json& child) { return child.is_structured(); });
  };
  if (!json.is_structured() || (!has_parts(json) && !indent.empty())) return json.dump();
  std::string out;
  for (const auto& [key, value] : json.items()) {
    out += out.empty() ? "" : ",";
    out += fmt::format("\n{} {}{}", indent, json.is_object() ? Json(key).dump() + ": " : "",
                       lines_of(value, indent + " "));
  }
  return fmt::format("{}{}\n{}{}", json.is_object() ? "{" : "[", out, indent, json.is_object() ? "}" : "]");
}

}  // namespace

TrainConfig search_config(const TrainConfig& config) {
  TrainConfig c = config;
  c.budget = "largest";
  c.count = "groups";
  c.baseline = "none";
  c.mapping = "single";
  c.groups = 0;
  c.labels.clear();
  c.combine = config.combine == "wavg" ? "wavg" : "emb";
  c.templates = kTemplates;
  c.allocation = "resized";
  c.validation = 0;
  c.eval_every = 0;
  c.ema = 0;  // the groups follow from the weights themselves
  c.patience = 0;
  c.shards = 0;  // one rank does it, whatever their number
  c.epochs =
      config.search_epochs > 0 ? std::llround(std::ceil(config.search_epochs)) : (config.epochs + 9) / 10;
  const double share = static_cast<double>(c.epochs) / static_cast<double>(config.epochs);
  c.warmup *= share;
  c.lr_every *= share;
  if (c.schedule == name_of(ScheduleKind::exponential) && c.lr_every == 0)
    c.lr_factor = std::pow(c.lr_factor, 1 / share);
  std::vector<double> milestones = parse_epochs(config.lr_steps);
  for (double& epoch : milestones) epoch *= share;
  c.lr_steps = fmt::format("{}", fmt::join(milestones, ","));
  return c;
}

std::int64_t search_threads_of(const TrainConfig& config, const Plan& plan, const InputShape& input) {
  if (config.search_threads > 0) return config.search_threads;
  if (config.threads > 0) return config.threads;
  const Placement placement = find_placement(1);
  if (placement.requested > 0) return placement.requested;
  return std::min<std::int64_t>(useful_threads(plan, input, config.batch / config.micro_batches),
                                placement.node);
}

Search search_mapping(Comm& comm, const TrainConfig& config, const Dataset& dataset, const Samples& set) {
  const Span span("search");
  const StopSignals signals;
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  std::exception_ptr error;
  if (comm.rank() == 0) {
    try {
      text = search_alone(config, dataset, set).dump();
    } catch (...) {
      error = std::current_exception();
    }
  }
  comm.idle_barrier();
  on_root(comm, [&] {
    if (error) std::rethrow_exception(error);
  });
  comm.broadcast(text);
  Search search{.mapping = Json::parse(text), .stopped = comm.agree(StopSignals::arrived()) != 0};
  for (const auto& [name, group] : search.mapping.items())
    if (group.is_number()) search.labels[name] = group.get<int>();
  search.threads = search.mapping["notes"]["threads"].get<std::int64_t>();
  search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return search;
}

std::string groups_text(const Search& search) {
  std::map<int, std::vector<std::string>> layers;
  const Json& notes = search.mapping["notes"];
  for (const Json& name : notes["layers"])
    layers[search.mapping[name.get<std::string>()].get<int>()].push_back(name);
  std::string out = search.threads == 0
                        ? fmt::format("{} group(s), without a training", layers.size())
                        : fmt::format("{} groups in {:.1f} s, test error@1 {:.2f}%", layers.size(),
                                      search.seconds, notes["test_error1"].get<double>());
  for (const auto& [group, names] : layers)
    out += fmt::format("\n  group {}: {}", group, fmt::join(names, ", "));
  return out;
}

std::string mapping_text(const Json& mapping) {
  return lines_of(mapping, "") + "\n";
}

}  // namespace ssn
