#include "tools/training/profile.h"
#include "runtime/log.h"
#include "tools/commands.h"
#include "tools/training/alike.h"
#include "tools/training/modelled.h"

namespace ssn {
namespace {

using Json = nlohmann::ordered_json;

struct ProfileCommand {
  TrainConfig config;
  ProfileOptions times;
  std::string budgets = "dense,10%";
  double tflops = 0, gbs = 800;
  bool json = false, quiet = false;
  Options options{
      "ssn profile",
      "Trains a network under several budgets for a few steps at a time, in turns, and shows where\n"
      "their time goes and how much faster a step is than the first budget's.",
      "mpirun -n 2 --bind-to none ssn profile --model bert-2-768 --data synthetic-text --budgets "
      "dense,25%,10%"};

  ProfileCommand() {
    add_network_options(options, config);
    add_training_options(options, config);
    options.section("This call")
        .add("budgets", budgets, "B,B,...", "as --budget; the first is what the others are compared with")
        .flag_only()
        .add("turns", times.turns, "N", "of each budget", between(2, 1000))
        .flag_only()
        .add("steps", times.steps, "N", "timed in a turn, after one that is not", between(1, 10000))
        .flag_only()
        .add("trace", times.trace, "FILE",
             "write the steps of each budget's last turn, of all ranks, for ui.perfetto.dev")
        .flag_only()
        .add("tflops", tflops, "X",
             "measure nothing: take the work's time from its FLOPs, on a processor that sustains X 10^12 a "
             "second; a rank, with --json, for ssn simulate",
             at_least(0))
        .flag_only()
        .show_default("")
        .add("gbs", gbs, "X", "with --tflops: 10^9 bytes a second of its memory", above(0))
        .flag_only()
        .add("json", json, "print the result as one JSON object")
        .flag_only()
        .add("quiet", quiet, "no progress on stderr")
        .flag_only();
  }
};

/// "dense,10%" at the commas.
std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& part : parts) Budget::parse(part);
  return parts;
}

/// What is shown of one budget; the columns of the table.
std::vector<std::string> column(const Comm& comm, const Profile& p, const Profile& base, std::int64_t batch) {
  const auto text = [](const Spread& s) {
    return fmt::format("{:.2f} ({:.2f}-{:.2f})", 1e3 * s.median, 1e3 * s.low, 1e3 * s.high);
  };
  std::vector<std::string> out = {p.budget, grouped(p.parameters), grouped(p.bytes), text(p.step)};
  for (const Spread& phase : p.phases) out.push_back(text(phase));
  const double used = bus_bandwidth(comm, p.bytes, p.sum_seconds),
               raw = bus_bandwidth(comm, p.bytes, p.raw_seconds);
  out.push_back(comm.size() == 1 ? "-" : fmt::format("{:.3f}", used / 1e9));
  out.push_back(comm.size() == 1 ? "-" : fmt::format("{:.3f}", raw / 1e9));
  out.push_back(fmt::format("{:.0f}, {:.0f}, {:.0f}%", 100 * complete_after(p.completions, 0.25),
                            100 * complete_after(p.completions, 0.5),
                            100 * complete_after(p.completions, 1)));
  const auto ms = [&](double seconds) {
    return comm.size() == 1 ? "-" : fmt::format("{:.2f}", 1e3 * seconds);
  };
  out.push_back(ms(p.work_seconds));
  out.push_back(ms(p.bound()));
  out.push_back(comm.size() == 1 ? "-"
                : p.hideable() == 0
                    ? "nothing can be"
                    : fmt::format("{:.0f}% of {:.2f} ms", 100 * p.hidden_share(), 1e3 * p.hideable()));
  out.push_back(fmt::format("{:.1f}", static_cast<double>(batch) / p.step.median));
  const Speedup faster = speedup(base.turns, p.turns);
  out.push_back(&p == &base ? "1"
                            : fmt::format("{:.3f} ({:.3f}-{:.3f})", faster.mean, faster.low, faster.high));
  return out;
}

std::string table(const Comm& comm, const TrainConfig& config, const ProfileOptions& times,
                  const std::vector<Profile>& profiles) {
  std::vector<std::string> names = {"budget", "parameters", "bytes summed a step", "ms a step"};
  for (const char* phase : kPhaseNames) names.push_back(fmt::format("  {}", phase));
  names.insert(names.end(), {"bus GB/s in the step", "bus GB/s alone", "25, 50, 100% complete at",
                             "ms without the sums", "ms at least", "of the sums is hidden", "samples/s",
                             fmt::format("times as fast as {}", profiles.front().budget)});
  std::vector<std::vector<std::string>> columns;
  for (const Profile& p : profiles) columns.push_back(column(comm, p, profiles.front(), config.batch));
  std::string out = fmt::format(
      "{} on {}, {} samples a step, {}, {} thread(s) each\nmedians and the middle 80% of {} turns of {} "
      "steps{}\n",
      config.model, config.data, config.batch, comm.text(), config.threads, times.turns, times.steps,
      comm.size() == 1 ? "" : ", of all ranks; a step lasts as long as the slowest rank's");
  for (std::size_t row = 0; row < names.size(); ++row) {
    out += fmt::format("\n{:<24}", names[row]);
    for (const auto& cells : columns) out += fmt::format(" {:>28}", cells[row]);
  }
  return out + R"(

reduce: of the sum over the ranks, what the step does or waits for, slower ranks too; reduce hidden: what another
thread did meanwhile, beside the other phases. complete at: the share of backward after which so much of the groups'
gradient can be summed. at least: the work alone, or the work up to the first sum, the sums alone, and what follows.
Of the sums, what the work behind the first leaves time for can be hidden. The last line has the 95% confidence
interval.)";
}

Json to_json(const Spread& s) {
  return {{"median", s.median}, {"low", s.low}, {"high", s.high}};
}

Json to_json(const SumSchedule& s) {
  Json sums = Json::array();
  for (const SumStart& sum : s.sums) sums.push_back({{"after", sum.after}, {"bytes", sum.bytes}});
  return {{"sums", std::move(sums)}, {"backward_end", s.backward_end}, {"tail", s.tail}};
}

Json to_json(const Comm& comm, const TrainConfig& config, const ProfileOptions& times,
             const std::vector<Profile>& profiles) {
  Json out = {{"network", config.model}, {"data", config.data},       {"batch", config.batch},
              {"ranks", comm.size()},    {"threads", config.threads}, {"turns", times.turns},
              {"steps", times.steps},    {"budgets", Json::array()}};
  for (const Profile& p : profiles) {
    Json completions = Json::array();
    for (const GroupCompletion& c : p.completions)
      completions.push_back({{"group", c.group}, {"bytes", c.bytes}, {"share_of_backward", c.share}});
    Json phases;
    for (std::size_t i = 0; i < kPhaseNames.size(); ++i) phases[kPhaseNames[i]] = to_json(p.phases[i]);
    const Speedup faster = speedup(profiles.front().turns, p.turns);
    out["budgets"].push_back({{"budget", p.budget},
                              {"parameters", p.parameters},
                              {"wire_bytes_per_step", p.bytes},
                              {"step_seconds", to_json(p.step)},
                              {"turn_seconds", p.turns},
                              {"phase_seconds", std::move(phases)},
                              {"schedule", to_json(p.schedule)},
                              {"completions", std::move(completions)},
                              {"sum_seconds", p.sum_seconds},
                              {"raw_sum_seconds", p.raw_seconds},
                              {"work_seconds", p.work_seconds},
                              {"bound_seconds", p.bound()},
                              {"hideable_seconds", p.hideable()},
                              {"hidden_share", p.hidden_share()},
                              {"busbw", bus_bandwidth(comm, p.bytes, p.sum_seconds)},
                              {"raw_busbw", bus_bandwidth(comm, p.bytes, p.raw_seconds)},
                              {"speedup", faster.mean},
                              {"speedup_low", faster.low},
                              {"speedup_high", faster.high}});
  }
  return out;
}

/// With --tflops.
int model_profiles(Comm& comm, ProfileCommand& command, const std::vector<std::string>& budgets) {
  TrainConfig& config = command.config;
  check_usage(command.json && comm.size() == 1, "profile",
              "--tflops describes a rank's step for ssn simulate: give --json, and start one rank");
  const KnownSet known =
      known_set(config.data, dataset_options(comm, config, command.options)).value_or(KnownSet{});
  const std::vector<Profile> profiles =
      model_steps(config, budgets, planned_input(config, known), {1e12 * command.tflops, 1e9 * command.gbs});
  print_result(comm, to_json(comm, config, command.times, profiles).dump());
  return 0;
}

}  // namespace

int profile(Comm& comm, const Arguments& arguments) {
  ProfileCommand command;
  auto& [config, times, budgets, tflops, gbs, json, quiet, options] = command;
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  set_log({.rank = comm.rank(), .quiet = quiet});
  check_alike(comm,
              common_options(options, {fmt::format("--budgets {} --turns {} --steps {} --tflops {} --gbs {}",
                                                   budgets, times.turns, times.steps, tflops, gbs)}));
  check_usage(!options.given("budget"), "profile", "give all budgets in one list: --budgets dense,{}",
              config.budget);
  check_usage(!learns_mapping(config), "profile",
              "--mapping learned: run ssn map first, and give the file it writes as --mapping");
  check_usage(config.baseline == "none", "profile", "--baseline {}: leave it out", config.baseline);
  const std::vector<std::string> list = listed(budgets);
  choose_device(comm, config.device);
  check_precision(config);
  read_mapping_file(comm, config);
  if (tflops > 0) return model_profiles(comm, command, list);
  const Dataset dataset = load_dataset(config.data, dataset_options(comm, config, options));
  use_defaults_of(dataset, options, config);
  check_parts(comm, config, dataset.train->size());
  check_alike(comm, common_options(options, common_data(dataset)));
  const Model model(config, dataset.facts.input, device_of(config));
  const std::int64_t part = config.batch / (comm.size() * parts_of_rank(config, comm.size()));
  choose_threads(comm, config.threads, useful_threads(model.plan(), dataset.facts.input, part));
  choose_wire(comm, config);
  const std::vector<Profile> profiles = profile_steps(comm, config, list, dataset, times);
  print_result(comm,
               json ? to_json(comm, config, times, profiles).dump() : table(comm, config, times, profiles));
  return 0;
}

}  // namespace ssn
