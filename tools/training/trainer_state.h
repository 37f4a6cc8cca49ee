#pragma once
#include <optional>
#include <vector>

#include "autograd/moving_average.h"
#include "autograd/optimizer.h"
#include "runtime/checkpoint.h"
#include "runtime/comm.h"
#include "tools/training/config.h"
#include "tools/training/metrics.h"

// What a run has beside its network, as checkpoints keep it: with that it goes on exactly.
namespace ssn {

/// How far a run is, and what it found.
struct TrainerState {
  std::int64_t epoch = 0, step = 0;  // the next step is `step` of `epoch`
  std::int64_t skipped = 0;          // steps left out, since the run's beginning
  double best_error = 101;           // percent, on the validation set
  Metrics best_test = {};            // of the state that had it
  std::int64_t best_epoch = 0;       // at whose end it had
  std::int64_t waited = 0;           // epochs from there to the latest measurement
};
void store_state(const TrainerState& state, std::int64_t steps_per_epoch, Archive& archive);
/// Another number of steps an epoch than the archive's is a UsageError.
TrainerState restore_state(const Archive& archive, std::int64_t steps_per_epoch);

/// The optimizer's states, each a tensor a parameter: optimizer/velocity/<name>, ...
void store_optimizer(const Optimizer& optimizer, const Parameters& parameters, Archive& archive);
void restore_optimizer(Optimizer& optimizer, const Parameters& parameters, const Archive& archive);

/// average/parameters/<name> and average/statistics/<name>, as eval and export read them; nothing without
/// an average. Collective.
void store_average(Comm& comm, const std::optional<MovingAverage>& average, Parameters& parameters,
                   Archive& archive);
void restore_average(const std::optional<MovingAverage>& average, const Parameters& parameters,
                     const Archive& archive);

/// What each rank has of its own: the sums of the epoch so far, which with --shards are each shard's, and
/// without the running statistics.
struct OwnState {
  Comm& comm;
  std::int64_t shards;  // --shards
  const Parameters& parameters;
  const std::optional<MovingAverage>& average;
  std::vector<Metrics>& epoch_metrics;
};
/// On rank 0 alone. Collective.
void store_own(const OwnState& own, Archive& archive);
/// What more or fewer ranks wrote gives each the mean of their running statistics, which are restored
/// already.
void restore_own(const OwnState& own, const Archive& archive);

/// A rank's running statistics.
std::vector<Tensor> statistics(const Parameters& parameters);
std::vector<Tensor> copies(const std::vector<Tensor>& tensors);
/// Into tensors that are there.
void copy_all(const std::vector<Tensor>& from, const std::vector<Tensor>& to);

}  // namespace ssn
