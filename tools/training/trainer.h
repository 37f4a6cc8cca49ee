#pragma once
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "autograd/moving_average.h"
#include "autograd/optimizer.h"
#include "autograd/reducer.h"
#include "datasets/feed.h"
#include "runtime/progress.h"
#include "tools/training/memory.h"
#include "tools/training/recorder.h"
#include "tools/training/run_directory.h"
#include "tools/training/saver.h"
#include "tools/training/shards.h"
#include "tools/training/stop_signals.h"
#include "tools/training/task.h"
#include "tools/training/trainer_state.h"

namespace ssn {

/// How a run ended.
enum class Ending : std::uint8_t { complete, stop_after, signal };

struct TrainResult {
  Ending ending = Ending::complete;
  std::optional<Metrics> train = {};  // of the last epoch that was completed in this call
  std::optional<Metrics> test = {};   // of the last state, or of the best epoch's; none after a signal
  std::optional<std::int64_t> best_epoch = {};  // with --patience, of a run that is complete
  bool stopped_early = false;                   // the patience ended before the epochs
  std::int64_t epochs = 0, steps = 0;
  std::int64_t skipped = 0;       // steps left out, since the run's beginning
  double seconds = 0;             // all of run()
  double samples_per_second = 0;  // of training alone
  std::int64_t wire_bytes_per_step = 0;
  double search_seconds = 0;         // since the run's beginning
  SaveTimes saving = {};             // in this call; of rank 0
  double host_seconds_per_step = 0;  // on a GPU: that the processor takes to queue a step's work
  std::int64_t replayed_steps = 0;   // of this call: recorded before, and repeated (--graph)
};

/// Every sample once, as it is, and as many at a time as a part of a step has: an evaluation takes no more
/// memory than training, and gives the same whatever their number.
LoaderOptions evaluation_options(const TrainConfig& config);

/// Trains a model on one rank or several. Rank r of N takes part r of N of every global batch (with
/// micro-batches, m parts of N m, one after another). A part's loss is its sum over the samples divided by
/// the global batch, so the sum of the gradients over parts and ranks is the gradient of the mean. With
/// --shards the parts are S whatever the ranks, and what they give is added in one binary tree (shards.h).
class Trainer {
 public:
  struct Setup {
    const TrainConfig& config;
    const Dataset& dataset;
    Samples train, validation;                   // of the training set; no validation: null
    Recompute recompute = {};                    // segments that are computed again in backward
    const RunDirectory* directory = nullptr;     // none: nothing is written
    std::string config_text = {}, command = {};  // go into checkpoints
    std::int64_t stop_after = 0;                 // steps from the run's beginning; 0: none
    double search_seconds = 0;                   // that it took to find the groups
  };
  Trainer(Comm& comm, Model& model, const Setup& setup);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Goes on from a checkpoint of the same run. Exactly, with as many ranks and threads as wrote it; with
  /// --shards on any number of ranks. `path` is the checkpoint's.
  void resume(const Archive& archive, const std::string& path);
  TrainResult run();
  /// Trains for so many steps and does nothing else, for measuring: the mean loss of each, over this rank's
  /// samples.
  std::vector<double> run_steps(std::int64_t count);
  /// Whether from now on steps do all but sum the gradient over the ranks: for measuring, without recording.
  void set_silent(bool on) {
    check(!recorder_, "train", "a step that is repeated has its sums in it: --graph off");
    reducer_.set_silent(on);
  }
  /// Steps so far that were recorded before and repeated (--graph).
  std::int64_t replayed_steps() const { return recorder_ ? recorder_->replayed() : 0; }
  /// Something that is told when a group's gradient, or a part of it, is complete.
  void on_complete(std::function<void(const Completion&)> told) { told_ = std::move(told); }

 private:
  using Clock = std::chrono::steady_clock;

  /// False: to be stopped here.
  bool run_epoch(Feed& batches, Progress& progress);
  struct Step {
    double loss;
    std::int64_t samples;
  };
  Step step(Feed& batches);
  void update();
  /// Of a step whose loss, or gradient from this flat element on, is not finite on some rank: an Error with
  /// --on-nonfinite stop, or else told and counted. Collective.
  void leave_out(bool loss_finite, std::optional<std::int64_t> element);
  PrefetchOptions from_here() const;
  /// Forward and backward of one of the rank's parts. Nothing here waits for the device.
  Given accumulate(const Batch& batch);
  void choose_recording();
  /// Queues part `part` of a step, the last one with its sums over the ranks where these wait for nothing.
  Given queue_part(std::int64_t part, const Batch& batch);
  /// Adds what each part gave to the metrics; returns the sum of its samples' losses.
  double read(const std::vector<Given>& parts);
  /// Parts of a rank that are measured on their own.
  std::int64_t measured_parts() const { return shards_ ? parts_ : 1; }
  Metrics measure(const Loader& loader) { return evaluate(comm_, model_, loader, measured_parts()); }
  /// What the run has to show, once it is complete or stopped.
  void measure_result(TrainResult& result);
  /// Measures the state, adds that to the line of metrics and returns it for the log. `best`: as no state
  /// before on the validation set.
  std::string measure(nlohmann::ordered_json& line, bool& best);
  void end_epoch(Progress& progress);
  /// A checkpoint, which is the best one too where `best`: written while the training goes on.
  void save(bool best);
  void check_same_data(const Archive& archive) const;
  /// Before all ranks throw: what is being written is finished.
  void settle();
  /// What the directory has, beside the checkpoint, of a run that is taken up.
  void take_up_files(const std::string& path);
  OwnState own() { return {comm_, config_.shards, model_.parameters, average_, epoch_metrics_}; }
  std::int64_t wire_bytes_per_step() const;
  /// 0 on the CPU, which does a step's work itself.
  double host_seconds_per_step() const;
  std::int64_t steps_done() const { return state_.epoch * steps_per_epoch_ + state_.step; }
  bool patience_ended() const { return config_.patience > 0 && state_.waited >= config_.patience; }
  bool complete() const { return state_.epoch >= config_.epochs || patience_ended(); }

  Comm& comm_;
  Model& model_;
  const TrainConfig& config_;
  const Dataset& dataset_;
  const RunDirectory* directory_;
  Recompute recompute_;
  std::string config_text_, command_;  // the command that began the run
  std::int64_t stop_after_;

  Loader train_;
  std::optional<Loader> validation_;
  Loader test_;
  std::int64_t steps_per_epoch_;
  ScheduleOptions schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<MovingAverage> average_;
  Reducer reducer_;
  std::int64_t parts_;  // of a step, of each rank
  std::optional<Shards> shards_;
  std::optional<Recorder> recorder_;  // where steps are recorded and repeated
  std::function<void(const Completion&)> told_;
  MetricsFile metrics_file_;
  std::unique_ptr<Saver> saver_;  // of rank 0, where the run has a directory
  double search_seconds_;
  std::vector<std::string> data_;  // what is known of it: common_data()
  SaveTimes saving_;

  TrainerState state_;
  std::vector<Metrics> epoch_metrics_;    // of the epoch so far: this rank's, or each of its shards'
  std::optional<Metrics> train_metrics_;  // of the epoch before
  std::optional<Metrics> test_metrics_;   // of the state at the last epoch's end, where it was measured
  double training_seconds_ = 0, epoch_seconds_ = 0;
  std::int64_t trained_samples_ = 0, epoch_samples_ = 0;
  double queueing_seconds_ = 0;
  std::int64_t first_step_ = 0, first_bytes_ = 0;  // where this call of the program began
  bool signalled_ = false;
};

}  // namespace ssn
