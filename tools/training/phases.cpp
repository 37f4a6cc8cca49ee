#include "tools/training/phases.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace ssn {
namespace {

/// Of a span by its name; spans without one belong to what they lie in.
std::optional<Phase> phase_of(std::string_view name) {
  if (name == "data") return Phase::data;
  if (name.starts_with("generate")) return Phase::generate;
  if (name == "forward") return Phase::forward;
  if (name == "backward") return Phase::backward;
  if (name == "start sum" || name == "finish sum") return Phase::reduce;
  if (name == "optimizer") return Phase::optimizer;
  return std::nullopt;
}

double seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e9;
}

struct Interval {
  std::int64_t begin, end;
};
std::int64_t overlap(Interval a, Interval b) {
  return std::max<std::int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

struct Open {
  std::int64_t end;
  Phase phase;
};

struct Step {
  Interval interval;
  std::size_t thread;
  std::vector<Interval> reducing;
  StepTimes times;
};

/// The steps, with the phases of the thread that does them.
std::vector<Step> find_steps(const Trace& trace) {
  std::vector<Step> steps;
  std::vector<Open> open;
  for (const TraceEvent& e : trace.events) {
    const bool is_step = std::string_view(e.name) == "step";
    if (is_step) {
      steps.push_back({{e.begin, e.end}, e.thread, {}, {.step = seconds(e.end - e.begin)}});
      open.clear();
    } else if (steps.empty() || e.thread != steps.back().thread || e.begin >= steps.back().interval.end) {
      continue;
    }
    while (!open.empty() && open.back().end <= e.begin) open.pop_back();
    const Phase within = open.empty() ? Phase::other : open.back().phase;
    const Phase phase = phase_of(e.name).value_or(within);
    StepTimes& times = steps.back().times;
    if (!is_step) times[within] -= seconds(e.end - e.begin);
    times[phase] += seconds(e.end - e.begin);
    if (phase == Phase::reduce && within != Phase::reduce) steps.back().reducing.push_back({e.begin, e.end});
    open.push_back({e.end, phase});
  }
  return steps;
}

}  // namespace

std::vector<StepTimes> step_times(const Trace& trace) {
  std::vector<Step> steps = find_steps(trace);
  for (const TraceEvent& e : trace.events) {
    if (std::string_view(e.name) != "allreduce") continue;
    for (Step& step : steps) {
      if (step.thread == e.thread) continue;
      std::int64_t hidden = overlap({e.begin, e.end}, step.interval);
      for (const Interval& reducing : step.reducing) hidden -= overlap({e.begin, e.end}, reducing);
      step.times[Phase::hidden] += seconds(hidden);
    }
  }
  std::vector<StepTimes> times;
  for (const Step& step : steps) times.push_back(step.times);
  return times;
}

}  // namespace ssn
