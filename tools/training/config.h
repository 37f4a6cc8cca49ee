#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autograd/optimizer.h"
#include "autograd/reducer.h"
#include "autograd/schedule.h"
#include "datasets/dataset.h"
#include "runtime/checkpoint.h"
#include "runtime/comm.h"
#include "runtime/options.h"
#include "ssn/shared_weights.h"

namespace ssn {

/// Everything that decides what a training run computes, as the user gives it.
struct TrainConfig {
  std::string model = "wrn-16-1", data = "digits", input;
  bool flip = false;
  std::int64_t crop = 0, cutout = 0;
  double crop_area = 0.08;
  std::int64_t data_threads = 0;
  bool skip_bad = false;
  double validation = 0;
  std::string vocab;  // text: a file; else of vocab_size, built from the training text
  std::int64_t vocab_size = 0, length = 128;
  bool cased = false;

  std::string init;  // a file of weights to start from, or empty

  std::string budget = "25%", count = "groups", baseline = "none", mapping = "single";
  std::int64_t groups = 0;
  std::string combine = "emb", allocation = "cursor";
  std::int64_t templates = 8, embedding = 24;
  std::string upsample = "mask", inter = "aspect", masks = "group", mask_init = "small", gain = "auto";
  std::int64_t window = 9;
  double search_epochs = 0;         // of the preliminary training; 0: a tenth of the epochs
  double near = 0;                  // with_places() of the layers
  std::int64_t search_threads = 0;  // of the rank that does it; 0: as search_threads_of() says
  bool softmax = false;             // of the coefficients
  std::string weights = "eager";
  Labels labels;  // of --mapping learned or a file, once they are known

  std::int64_t epochs = 200, batch = 64, micro_batches = 1;
  std::string schedule = "cosine", lr_steps = "60,120,160";
  double lr = 0.1, warmup = 0, final_lr = 0, lr_factor = 0.2, lr_every = 0;
  std::string optimizer = "sgd";
  double momentum = 0.9, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 5e-4;
  bool nesterov = true;
  std::string on_nonfinite = "stop";
  double clip = 0, ema = 0, label_smoothing = 0;  // clip, ema: 0: none
  std::int64_t patience = 0;                      // epochs; 0: without end

  std::int64_t save_every = 0, keep = 1;  // steps; 0: at the end of epochs only
  std::string on_save_failure = "stop";
  bool compress = false;  // checkpoints

  std::string precision = "f32", recompute = "none", memory;

  std::string device = "auto", graph = "on";
  std::int64_t seed = 0, threads = 0, eval_every = 5;
  std::int64_t shards = 0;  // 0: the ranks' parts are not fixed
  std::string overlap = "on";
  std::int64_t bucket = 1024;  // KiB
  std::string wire = "f32";
};

/// Everything that concerns one call only.
struct RunConfig {
  std::string out, resume, trace;
  bool overwrite = false, json = false, quiet = false;
  std::int64_t stop_after = 0;
  double timeout = kHangTimeout;
};

void add_network_options(Options& options, TrainConfig& config);
void add_training_options(Options& options, TrainConfig& config);
void add_run_options(Options& options, RunConfig& run);

/// Fills in what depends on the data and was not given.
/// Samples a step where nobody says: few make few steps an epoch, and smaller batches give enough of them.
std::int64_t usual_batch(std::int64_t training_samples);
void use_defaults_of(const Dataset& dataset, const Options& options, TrainConfig& config);

/// Whether --mapping asks for a search; without the number of groups that is a UsageError.
bool learns_mapping(const TrainConfig& config);
/// The labels of --mapping FILE, which rank 0 reads. Collective.
void read_mapping_file(Comm& comm, TrainConfig& config);
/// The plan of a checkpoint, as its attribute says.
nlohmann::json stored_plan(const Archive& archive);
/// The labels that a checkpoint was trained with, so that neither a file nor a search is needed again.
void take_mapping(const Archive& archive, TrainConfig& config);
/// The options that a checkpoint was trained with, and its labels; `path` names it in errors.
TrainConfig stored_config(const Archive& archive, const std::string& path);

/// As the configuration says; of what is done to training images, what was not given stays as usual for the
/// data (without `options`, all of it).
DatasetOptions dataset_options(const Comm& comm, const TrainConfig& config);
DatasetOptions dataset_options(const Comm& comm, const TrainConfig& config, const Options& options);
/// --data-threads and --skip-bad, for every command that reads data.
void add_reading_options(Options& options, std::int64_t& data_threads, bool& skip_bad);
/// Of --data-threads, where 0 stands for what suits this rank's share of the cores.
std::int64_t data_threads(const Comm& comm, std::int64_t given);
PlanOptions plan_options(const TrainConfig& config);
OptimizerOptions optimizer_options(const TrainConfig& config);
ScheduleOptions schedule_options(const TrainConfig& config);
ReducerOptions reducer_options(const TrainConfig& config);
/// Of --device; auto is replaced by the device it stands for: the GPUs, where every rank has one of its own.
/// A rank takes its own; with cuda, ranks that have none are a UsageError. Collective, before the first use
/// of a GPU.
Device choose_device(Comm& comm, std::string& device);
/// Once it is chosen.
Device device_of(const TrainConfig& config);
/// A --precision that the chosen device has not is a UsageError.
void check_precision(const TrainConfig& config);
/// Sets the threads of this rank: `threads`; if 0, as many as it should use, but not more than `most`. Warns
/// where the launcher's binding slows the ranks down.
void choose_threads(Comm& comm, std::int64_t& threads, std::int64_t most);
/// Of --wire; says so where nothing travels between the ranks. Collective.
void choose_wire(Comm& comm, const TrainConfig& config);
/// More threads than this cost a step more in waiting for each other than they gain.
std::int64_t useful_threads(const Plan& plan, const InputShape& input, std::int64_t batch);
/// Parts of a step that each of so many ranks computes one after another: its shards or micro-batches.
std::int64_t parts_of_rank(const TrainConfig& config, std::int64_t ranks);
/// A step must have a sample for every part, and shards must be divisible over the ranks.
void check_parts(const Comm& comm, const TrainConfig& config, std::int64_t training_samples);

/// The epochs of "60,120,160": rising, at least one.
std::vector<double> parse_epochs(const std::string& text);

}  // namespace ssn
