#pragma once
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/training/phases.h"
#include "tools/training/trainer.h"

namespace ssn {

struct ProfileOptions {
  std::int64_t turns = 5;  // how often each network has its turn
  std::int64_t steps = 4;  // timed in a turn, behind one that is not
  std::string trace;       // file for the last turns' spans of all ranks (runtime/trace_file.h)
};

/// A median and the middle eighty percent around it.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> values);

/// What times that were taken in turns say of how much faster one is: the geometric mean of the turns'
/// ratios, and its 95% confidence interval (Student's t).
struct Speedup {
  double mean = 1, low = 1, high = 1;
};
Speedup speedup(const std::vector<double>& base, const std::vector<double>& other);

/// One network's steps, the same on all ranks.
struct Profile {
  std::string budget;
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;                    // handed over in a step by a rank
  Spread step;                               // seconds; of a step, the slowest rank's
  std::vector<double> turns;                 // the turns' median steps
  std::vector<Spread> phases;                // seconds, as kPhaseNames; over steps and ranks
  SumSchedule schedule;                      // rank 0's, of steps that sum nothing
  std::vector<GroupCompletion> completions;  // of such a step of rank 0, as they follow each other
  // On several ranks, else 0:
  double sum_seconds = 0;   // of a step's sum over the ranks, while training
  double raw_seconds = 0;   // of the same sum with nothing beside it
  double work_seconds = 0;  // of a step that sums nothing; the slowest rank's

  /// What a step takes at least: its work, or its work up to the first sum, the sums, and what follows.
  double bound() const;
  /// Of the sums, how much could run beside the work; and which share of that does. 0 where none can.
  double hideable() const;
  double hidden_share() const;
};

/// `config` with this budget. What it says of groups, with which dense would be a UsageError, is for the
/// others.
TrainConfig with_budget(TrainConfig config, const std::string& budget);

/// Trains the network of `config` under each budget for a few steps at a time, in turns, so that what else
/// the machine does meets all alike. Collective.
std::vector<Profile> profile_steps(Comm& comm, const TrainConfig& config,
                                   const std::vector<std::string>& budgets, const Dataset& dataset,
                                   const ProfileOptions& options);

/// Of a sum of so many bytes: what a ring's links carry, bytes a second.
double bus_bandwidth(const Comm& comm, std::int64_t bytes, double seconds);

}  // namespace ssn
