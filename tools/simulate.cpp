#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/commands.h"
#include "tools/training/profile.h"
#include "tools/training/simulate.h"

namespace ssn {
namespace {

using Json = nlohmann::ordered_json;

struct SimulateCommand {
  std::string file, network = "1gbit", node = "none", algorithm = "direct",
                    ranks = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096";
  Cluster cluster;
  bool overlap = true, json = false;
  Options options{
      "ssn simulate",
      "Predicts a training step on more ranks and other networks than there are: replays the sums over the\n"
      "ranks that ssn profile --json has recorded. Each rank's own work stays as it was.",
      "ssn simulate profile.json --network edr --ranks-per-node 8 --node nvlink-v100"};

  SimulateCommand() {
    std::vector<std::string> names;
    for (const NamedLink& link : known_links()) names.emplace_back(link.name);
    options.positional("FILE", file, "what ssn profile --json printed")
        .add("network", network, "NAME|L,B",
             fmt::format("between nodes: {}; or latency and bandwidth, such as 5us,10GB",
                         fmt::join(names, ", ")))
        .add("node", node, "NAME|L,B", "the same between the ranks of a node")
        .show_default("2us,20GB")
        .add("ranks-per-node", cluster.ranks_per_node, "N", "ranks of a node, which share its link",
             between(1, 1024))
        .add("algorithm", algorithm, "NAME", "of the sums; direct is that of ssn train",
             names_of<SumAlgorithm>())
        .add("speed", cluster.speed, "X", "of the processors, as a multiple of those that were profiled",
             above(0))
        .add("interference", cluster.interference, "X",
             "share by which the step's own work lasts longer while a sum is under way", at_least(0))
        .add("overlap", overlap, "sums run while backward goes on")
        .add("ranks", ranks, "N,N,...", "how many, at most 4096 each")
        .add("json", json, "print the result as one JSON object");
  }
};

/// A number with one of the units behind it.
double parse_unit(const std::string& text, const std::vector<std::pair<std::string, double>>& units,
                  const char* flag) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  for (const auto& [unit, factor] : units)
    if (error == std::errc() && std::string_view(rest, end) == unit && number > 0 && number < 1e9)
      return number * factor;
  fail_usage("simulate",
             "--{}: expected the name of a network, or latency and bandwidth such as 5us,10GB, found '{}'",
             flag, text);
}

Link parse_link(const std::string& text, const char* flag) {
  for (const NamedLink& known : known_links())
    if (text == known.name) return known.link;
  const std::size_t comma = std::min(text.find(','), text.size());
  return {parse_unit(text.substr(0, comma), {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}}, flag),
          parse_unit(text.substr(std::min(comma + 1, text.size())), {{"GB", 1e9}, {"MB", 1e6}}, flag)};
}

std::vector<std::int64_t> parse_ranks(const std::string& text) {
  std::vector<std::int64_t> all;
  const char *at = text.data(), *end = at + text.size();
  while (true) {
    std::int64_t n = 0;
    const auto [rest, error] = std::from_chars(at, end, n);
    check_usage(error == std::errc() && n >= 1 && n <= 4096 && (rest == end || *rest == ','), "simulate",
                "--ranks: expected numbers from 1 to 4096 such as 2,16,64, found '{}'", text);
    all.push_back(n);
    if (rest == end) return all;
    at = rest + 1;
  }
}

/// A budget of the profile.
struct Recorded {
  std::string budget;
  std::int64_t parameters;
  SumSchedule schedule;
};

Recorded recorded(const Json& json) {
  Recorded r{json.at("budget"), json.at("parameters"), {}};
  const Json& schedule = json.at("schedule");
  for (const Json& sum : schedule.at("sums")) r.schedule.sums.push_back({sum.at("after"), sum.at("bytes")});
  r.schedule.backward_end = schedule.at("backward_end");
  r.schedule.tail = schedule.at("tail");
  return r;
}

struct Recording {
  std::string network;
  std::int64_t batch = 0, ranks = 0;
  std::vector<Recorded> budgets;
};

Recording read_recording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check_usage(file.good() && !std::filesystem::is_directory(path), "simulate",
              "cannot read {}: write it with ssn profile --json > {}", path, path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Recording recording;
  try {
    const Json json = Json::parse(text);
    recording = {json.at("network"), json.at("batch"), json.at("ranks"), {}};
    for (const Json& budget : json.at("budgets")) recording.budgets.push_back(recorded(budget));
  } catch (const Json::exception& error) {
    fail_usage("simulate", "{} is not what ssn profile --json prints: {}", path, error.what());
  }
  check_usage(!recording.budgets.empty() && recording.batch > 0 && recording.ranks > 0, "simulate",
              "{} has no budgets", path);
  return recording;
}

std::string table(const Recording& recording, const std::vector<std::int64_t>& ranks,
                  const std::vector<std::vector<SimulatedStep>>& steps) {
  std::string out = fmt::format(
      "{}, {} samples a rank and step; ms a step, share of it that waits for sums, times as fast as "
      "{}\n\n{:>6}",
      recording.network, recording.batch / recording.ranks, recording.budgets[0].budget, "ranks");
  for (const Recorded& r : recording.budgets)
    out += fmt::format("  {:>26}", fmt::format("{} ({})", r.budget, grouped(r.parameters)));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    out += fmt::format("\n{:>6}", ranks[i]);
    for (const SimulatedStep& s : steps[i])
      out += fmt::format("  {:>12.2f} {:>5.1f}% {:>6.3f}", 1e3 * s.seconds, 100 * s.exposed / s.seconds,
                         steps[i][0].seconds / s.seconds);
  }
  return out;
}

Json to_json(const Recording& recording, const std::vector<std::int64_t>& ranks,
             const std::vector<std::vector<SimulatedStep>>& steps) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (std::size_t b = 0; b < steps[i].size(); ++b)
      rows.push_back({{"ranks", ranks[i]},
                      {"budget", recording.budgets[b].budget},
                      {"parameters", recording.budgets[b].parameters},
                      {"step_seconds", steps[i][b].seconds},
                      {"exposed_seconds", steps[i][b].exposed},
                      {"speedup", steps[i][0].seconds / steps[i][b].seconds}});
  return {{"network", recording.network},
          {"batch_per_rank", recording.batch / recording.ranks},
          {"steps", std::move(rows)}};
}

}  // namespace

int simulate(Comm& comm, const Arguments& arguments) {
  SimulateCommand command;
  if (!command.options.parse(arguments)) return print_result(comm, command.options.help()), 0;
  Cluster& cluster = command.cluster;
  cluster.network = parse_link(command.network, "network");
  if (command.node != "none") cluster.node = parse_link(command.node, "node");
  cluster.algorithm = value_named<SumAlgorithm>(command.algorithm);
  const std::vector<std::int64_t> ranks = parse_ranks(command.ranks);
  Recording recording = read_recording(command.file);
  if (!command.overlap)
    for (Recorded& r : recording.budgets)
      for (SumStart& sum : r.schedule.sums) sum.after = r.schedule.backward_end;
  std::vector<std::vector<SimulatedStep>> steps;
  for (const std::int64_t n : ranks) {
    steps.emplace_back();
    for (const Recorded& r : recording.budgets) steps.back().push_back(simulate_step(cluster, n, r.schedule));
  }
  print_result(comm, command.json ? to_json(recording, ranks, steps).dump() : table(recording, ranks, steps));
  return 0;
}

}  // namespace ssn
