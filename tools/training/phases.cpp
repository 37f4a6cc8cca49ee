#include "tools/training/phases.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "runtime/error.h"

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
  SumSchedule sums;
  std::int64_t waited = 0;  // in `reducing`
};

/// A span of Phase::reduce, outside of another or within one.
void note_reducing(Step& step, const TraceEvent& e, bool outermost) {
  SumSchedule& s = step.sums;
  if (outermost) {
    step.reducing.push_back({e.begin, e.end});
    s.backward_end = seconds(e.begin - step.interval.begin - step.waited);
    step.waited += e.end - e.begin;
    s.tail = step.times.step - seconds(step.waited) - s.backward_end;
  }
  if (e.bytes > 0) s.sums.push_back({s.backward_end, e.bytes});
}

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
    if (phase == Phase::reduce) note_reducing(steps.back(), e, within != Phase::reduce);
    open.push_back({e.end, phase});
  }
  return steps;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
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

SumSchedule sum_schedule(const Trace& trace) {
  const std::vector<Step> steps = find_steps(trace);
  if (steps.empty()) return {};
  const auto over_steps = [&](auto&& value) {
    std::vector<double> values;
    for (const Step& step : steps) values.push_back(value(step.sums));
    return median(std::move(values));
  };
  SumSchedule schedule = steps.front().sums;
  for (std::size_t i = 0; i < schedule.sums.size(); ++i) {
    for (const Step& step : steps)
      check(
          step.sums.sums.size() == schedule.sums.size() && step.sums.sums[i].bytes == schedule.sums[i].bytes,
          "profile", "the steps start different sums");
    schedule.sums[i].after = over_steps([i](const SumSchedule& s) { return s.sums[i].after; });
  }
  schedule.backward_end = over_steps([](const SumSchedule& s) { return s.backward_end; });
  schedule.tail = over_steps([](const SumSchedule& s) { return s.tail; });
  return schedule;
}

std::vector<GroupCompletion> group_completions(const Trace& trace, const std::vector<Completed>& all) {
  Interval backward{0, 0};
  for (const TraceEvent& e : trace.events)
    if (std::string_view(e.name) == "backward" && e.begin >= backward.begin) backward = {e.begin, e.end};
  std::vector<GroupCompletion> completions;
  for (const Completed& c : all) {
    if (c.at < backward.begin || c.at > backward.end) continue;
    completions.push_back(
        {c.group, c.bytes, seconds(c.at - backward.begin) / seconds(backward.end - backward.begin)});
  }
  return completions;
}

double complete_after(const std::vector<GroupCompletion>& completions, double share_of_bytes) {
  double all = 0, complete = 0;
  for (const GroupCompletion& c : completions) all += static_cast<double>(c.bytes);
  for (const GroupCompletion& c : completions) {
    complete += static_cast<double>(c.bytes);
    if (complete >= share_of_bytes * all) return c.share;
  }
  return 1;
}

}  // namespace ssn
