#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "datasets/loader.h"
#include "layers/models/zoo.h"
#include "runtime/checkpoint.h"
#include "tools/training/baseline.h"
#include "tools/training/config.h"
#include "tools/training/metrics.h"

namespace ssn {

/// A network and its parameters, as a configuration asks for them. Planned when constructed, which takes no
/// memory to speak of; build() gives it parameters.
class Model {
 public:
  Model(const TrainConfig& config, const InputShape& input, Device device);
  /// Start values, the same on every rank; gradients in the communicator's memory.
  void build(Comm& comm);

  const Plan& plan() const { return weights.plan(); }
  /// plan() as `ssn plan --json`, plan.json and checkpoints have it: with `reduced`, where the network is.
  nlohmann::json plan_json() const;
  const std::string& name() const { return name_; }
  /// If the network is smaller than the one of its name (--baseline reduced).
  const std::optional<Reduction>& reduction() const { return reduction_; }
  const InputShape& input() const { return input_; }

  Parameters parameters;
  SharedWeights weights;
  std::unique_ptr<Network> network;
  // While training, evaluations are in f32:
  bool half;  // Pass::half, --precision bf16
  bool tf32;  // products and convolutions on a GPU, --precision tf32

 private:
  Model(const TrainConfig& config, const InputShape& input, Device device, Setting setting);

  std::string name_;  // of the network
  InputShape input_;
  std::optional<Reduction> reduction_;
};

/// The network's input without reading data: what is known of it (known_set), and what flags say.
InputShape planned_input(const TrainConfig& config, const KnownSet& known, std::int64_t classes = 0);
/// What a network for data of this shape is made for.
NetworkTask task_of(const InputShape& input);
/// What a network reads of a batch.
NetworkInput network_input(const Batch& batch, Device device);
/// The same on `device`.
NetworkInput moved(const NetworkInput& input, Device device);

/// While it lives, products and convolutions are as precise as the model's training asks for.
class TrainingPrecision {
 public:
  explicit TrainingPrecision(const Model& model) { set(model.parameters.device(), model.tf32); }
  ~TrainingPrecision() { set(device_, false); }
  TrainingPrecision(const TrainingPrecision&) = delete;
  TrainingPrecision& operator=(const TrainingPrecision&) = delete;

 private:
  void set(Device device, bool tf32);
  Device device_ = Device::cpu;
};

/// While it lives, the running statistics are the means over the ranks; afterwards each rank has its own.
/// Collective; the sums are taken in the order of the ranks.
class AveragedStatistics {
 public:
  AveragedStatistics(Comm& comm, Parameters& parameters);
  ~AveragedStatistics();
  AveragedStatistics(const AveragedStatistics&) = delete;
  AveragedStatistics& operator=(const AveragedStatistics&) = delete;

 private:
  Parameters& parameters_;
  std::vector<Tensor> own_;
};

/// Called with each batch that is measured and its logits.
using Measured = std::function<void(const Batch& batch, const Tensor& logits)>;
/// The metrics of the whole set, whose batches are split over the ranks, and each rank's part in `parts` that
/// are measured one after another. Wants AveragedStatistics. `measured` is told of this rank's batches.
Metrics evaluate(Comm& comm, Model& model, const Loader& loader, std::int64_t parts = 1,
                 const Measured& measured = {});

/// The parameters and running statistics of a network, and what is needed to build it and to read its data.
void store_model(const Model& model, const DataFacts& facts, const std::string& config, Archive& archive);
/// Copies the archive's tensor of that name; one of another shape or type is an Error.
void restore(const Archive& archive, const std::string& name, const Tensor& to);
/// All tensors of the archive whose names begin with `prefix`, no more and no less, of finite values.
void restore_all(const Archive& archive, const std::string& prefix, const std::map<std::string, Tensor>& to);
/// The network that a checkpoint says to be of, for use; errors name the file.
Model stored_model(const Archive& archive, const TrainConfig& config, const InputShape& input, Device device);
/// An archive of another network, or another plan, is an Error that says what differs. Takes no memory, so
/// that it is for before build().
void check_plan(const Model& model, const Archive& archive);
/// An archive of another network, with other tensors than it has, or with values that are not finite is an
/// Error that says what differs.
void restore_model(Model& model, const Archive& archive);
/// What the run measured: the moving averages where it kept them (--ema), otherwise as restore_model.
void restore_for_use(Model& model, const Archive& archive);
/// Of the data that the network was trained on.
DataFacts stored_facts(const Archive& archive);

/// Samples of the two sets that were damaged, and whose place others took (--skip-bad), over all ranks. Says
/// so where there are any. Collective.
std::int64_t count_replaced(Comm& comm, const Dataset& dataset);

/// Rank 0 calls `f`; if that throws, every rank throws the same.
void on_root(Comm& comm, const std::function<void()>& f);

}  // namespace ssn
