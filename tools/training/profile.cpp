#include "tools/training/profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "runtime/log.h"
#include "runtime/trace_file.h"

namespace ssn {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

/// Student's t with so many degrees of freedom, for 95% on both sides together.
double student(std::size_t freedom) {
  constexpr std::array kTable = {12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  return freedom == 0               ? std::numeric_limits<double>::infinity()
         : freedom <= kTable.size() ? kTable[freedom - 1]
                                    : 1.96 + 2.5 / static_cast<double>(freedom);
}

/// One budget's network, and what this rank measured of it.
struct Contestant {
  Contestant(Comm& comm, const TrainConfig& base, const std::string& budget, const Dataset& dataset)
      : config(with_budget(base, budget)), model(config, dataset.facts.input, device_of(config)) {
    model.build(comm);
    trainer.emplace(comm, model,
                    Trainer::Setup{.config = config, .dataset = dataset, .train = dataset.train});
  }

  TrainConfig config;
  Model model;
  std::optional<Trainer> trainer;
  std::vector<StepTimes> times, silent_times;  // the latter of steps that sum nothing
  std::vector<SumSchedule> schedules;          // of the turns
  std::vector<GroupCompletion> completions;    // of the last turn
  std::int64_t bytes = 0;
  Trace last;  // turn
};

/// The spans of so many steps.
Trace trace_steps(Contestant& c, std::int64_t steps) {
  start_trace();
  {
    const Span span(c.config.budget.c_str());
    c.trainer->run_steps(steps);
  }
  return stop_trace();
}

std::vector<StepTimes> times_of(const Trace& trace, std::int64_t steps) {
  std::vector<StepTimes> times = step_times(trace);
  check(std::ssize(times) == steps, "profile", "{} of {} steps were recorded: lower --steps", times.size(),
        steps);
  return times;
}

void append(std::vector<StepTimes>& to, const std::vector<StepTimes>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void take_turn(Comm& comm, Contestant& c, std::int64_t steps) {
  c.trainer->run_steps(1);  // the batches' thread starts, caches fill
  comm.barrier();
  const std::int64_t before = comm.traffic().sum.bytes;
  c.last = trace_steps(c, steps);
  append(c.times, times_of(c.last, steps));
  c.bytes = (comm.traffic().sum.bytes - before) / steps;
  std::vector<Completed> completed;
  c.trainer->on_complete([&](const Completion& part) {
    const std::int64_t bytes = part.range.size * static_cast<std::int64_t>(sizeof(float));
    completed.push_back({part.group, bytes, detail::trace_clock()});
  });
  c.trainer->set_silent(true);
  const Trace silent = trace_steps(c, steps);
  c.trainer->set_silent(false);
  c.trainer->on_complete({});
  c.completions = group_completions(silent, completed);
  append(c.silent_times, times_of(silent, steps));
  c.schedules.push_back(sum_schedule(silent));
}

/// The same sum as a step's, with nothing beside it.
double time_raw_sum(Comm& comm, Parameters& parameters) {
  if (comm.size() == 1) return 0;
  parameters.zero_gradients();
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (const FlatRange& stretch : parameters.stretches())
      comm.start_sum(parameters.gradients().slice(stretch.first, Shape{stretch.size}));
    comm.wait_all();
    const std::vector<double> all =
        comm.allgather(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (i >= 2) seconds.push_back(*std::max_element(all.begin(), all.end()));
  }
  return spread_of(seconds).median;
}

/// Every rank's steps, rank by rank.
std::vector<std::vector<StepTimes>> all_ranks(Comm& comm, const std::vector<StepTimes>& mine) {
  const std::vector<std::byte> bytes = comm.allgather(std::as_bytes(std::span(mine)));
  std::vector<std::vector<StepTimes>> all(static_cast<std::size_t>(comm.size()));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto* first = reinterpret_cast<const StepTimes*>(bytes.data()) + r * mine.size();
    all[r].assign(first, first + mine.size());
  }
  return all;
}

/// Of each step, the slowest rank's seconds.
std::vector<double> slowest_steps(const std::vector<std::vector<StepTimes>>& ranks) {
  std::vector<double> slowest(ranks.front().size());
  for (const std::vector<StepTimes>& rank : ranks)
    for (std::size_t s = 0; s < slowest.size(); ++s) slowest[s] = std::max(slowest[s], rank[s].step);
  return slowest;
}

Profile summary(Comm& comm, Contestant& c, std::int64_t steps) {
  const std::vector<std::vector<StepTimes>> ranks = all_ranks(comm, c.times);
  Profile p{.budget = c.config.budget, .parameters = c.model.plan().total, .bytes = c.bytes};
  const std::vector<double> slowest = slowest_steps(ranks);
  std::vector<double> sums;
  std::vector<std::vector<double>> phases(kPhaseNames.size());
  for (std::size_t s = 0; s < c.times.size(); ++s) {
    // The rank that comes last waits for no other, so its time is the sum's.
    double sum = std::numeric_limits<double>::infinity();
    for (const std::vector<StepTimes>& rank : ranks) {
      sum = std::min(sum, rank[s][Phase::reduce] + rank[s][Phase::hidden]);
      for (std::size_t i = 0; i < phases.size(); ++i) phases[i].push_back(rank[s].phases[i]);
    }
    sums.push_back(sum);
  }
  p.step = spread_of(slowest);
  for (auto first = slowest.begin(); first != slowest.end(); first += steps)
    p.turns.push_back(spread_of({first, first + steps}).median);
  for (std::vector<double>& values : phases) p.phases.push_back(spread_of(std::move(values)));
  if (comm.size() > 1) {
    p.sum_seconds = spread_of(sums).median;
    p.work_seconds = spread_of(slowest_steps(all_ranks(comm, c.silent_times))).median;
  }
  // The turn whose work took the middle time.
  std::sort(c.schedules.begin(), c.schedules.end(), [](const SumSchedule& a, const SumSchedule& b) {
    return a.backward_end + a.tail < b.backward_end + b.tail;
  });
  p.schedule = c.schedules[c.schedules.size() / 2];
  p.completions = c.completions;
  p.raw_seconds = time_raw_sum(comm, c.model.parameters);
  return p;
}

/// The networks' last turns, one after another.
void write_last_turns(Comm& comm, const std::string& path,
                      const std::vector<std::unique_ptr<Contestant>>& contestants) {
  Trace all;
  for (const auto& c : contestants) {
    all.events.insert(all.events.end(), c->last.events.begin(), c->last.events.end());
    all.threads = c->last.threads;
    all.dropped += c->last.dropped;
  }
  const TraceWritten written = write_trace(comm, path, std::move(all), comm.clock_offset());
  info("{}: {} spans, {} left out", path, written.events, written.dropped);
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.5), quantile(values, 0.1), quantile(values, 0.9)};
}

Speedup speedup(const std::vector<double>& base, const std::vector<double>& other) {
  double mean = 0, squares = 0;
  const auto n = static_cast<double>(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) mean += std::log(base[i] / other[i]) / n;
  for (std::size_t i = 0; i < base.size(); ++i) squares += std::pow(std::log(base[i] / other[i]) - mean, 2);
  const double half = base.size() < 2 ? std::numeric_limits<double>::infinity()
                                      : student(base.size() - 1) * std::sqrt(squares / (n - 1) / n);
  return {std::exp(mean), std::exp(mean - half), std::exp(mean + half)};
}

double Profile::bound() const {
  const double first = schedule.sums.empty() ? 0 : schedule.sums.front().after;
  return std::max(work_seconds, first + raw_seconds + schedule.tail);
}

double Profile::hideable() const {
  const double first = schedule.sums.empty() ? schedule.backward_end : schedule.sums.front().after;
  return std::clamp(schedule.backward_end - first, 0.0, raw_seconds);
}

double Profile::hidden_share() const {
  const double hidden = work_seconds + raw_seconds - step.median;
  return hideable() > 0 ? std::clamp(hidden / hideable(), 0.0, 1.0) : 0;
}

double bus_bandwidth(const Comm& comm, std::int64_t bytes, double seconds) {
  const double share = 2.0 * (comm.size() - 1) / comm.size();
  return seconds > 0 ? share * static_cast<double>(bytes) / seconds : 0;
}

TrainConfig with_budget(TrainConfig config, const std::string& budget) {
  config.budget = budget;
  config.epochs = std::numeric_limits<std::int32_t>::max();
  if (budget == "dense")
    config.count = "groups", config.mapping = "single", config.groups = 0, config.labels = {};
  return config;
}

std::vector<Profile> profile_steps(Comm& comm, const TrainConfig& given,
                                   const std::vector<std::string>& budgets, const Dataset& dataset,
                                   const ProfileOptions& options) {
  TrainConfig config = given;
  config.graph = "off";  // a step that is repeated has no phases
  if (!options.trace.empty()) on_root(comm, [&] { atomic_write_text(options.trace, ""); });
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (const std::string& budget : budgets)
    contestants.push_back(std::make_unique<Contestant>(comm, config, budget, dataset));
  for (std::int64_t turn = 0; turn < options.turns; ++turn) {
    for (const auto& c : contestants) take_turn(comm, *c, options.steps);
    info("turn {} of {}", turn + 1, options.turns);
  }
  if (!options.trace.empty()) write_last_turns(comm, options.trace, contestants);
  std::vector<Profile> profiles;
  for (const auto& c : contestants) profiles.push_back(summary(comm, *c, options.steps));
  return profiles;
}

}  // namespace ssn
