#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasets/sample_set.h"
#include "runtime/arena.h"
#include "runtime/comm.h"
#include "runtime/graph.h"
#include "tools/training/config.h"

namespace ssn {

/// What a part of a step gave, on the device: its loss, a share of the global batch's mean, and the places
/// of its labels (label_ranks).
struct Given {
  Tensor loss, ranks;
  std::int64_t batch = 0;  // samples of the global one
};

/// Why --graph on cannot record the steps on GPUs; empty: it can. `sums_there`: what is summed over the ranks
/// stays in their memory (Comm::sums_on).
std::string unrecorded_because(const TrainConfig& config, bool sums_there);
/// Whether steps are recorded.
inline bool records_steps(const TrainConfig& config, Device device, bool sums_there) {
  return device == Device::cuda && config.graph == "on" && unrecorded_because(config, sums_there).empty();
}

/// Records the steps of a training on a GPU and repeats them (runtime/graph.h). The work of a part of a step
/// is done as it is until it was seen with tensors of the same shapes a few times, so that libraries have
/// their plans and the arena its memory; then it is recorded. A batch of other shapes is done as it is, and
/// so is the rest of its step: what follows in a step may read what was generated before in it. The last part
/// has the sums over the ranks, which NCCL wants recorded and repeated by all ranks together: if one cannot,
/// all do that part as it is.
class Recorder {
 public:
  /// `parts` of a step.
  Recorder(Comm& comm, std::int64_t parts);

  /// Of the step that begins.
  void begin_step(std::int64_t step);
  /// The number of the step in the device's memory, for Pass::device_step.
  const std::uint64_t* step() const { return static_cast<const std::uint64_t*>(step_.raw()); }

  /// Of the next part, with which batch: whether it can be repeated. For the last part collective.
  void prepare(std::int64_t part, const Batch& batch);
  /// Queues part `part` of the step: work(batch), or what was recorded of it. `batch` is on the device. In
  /// what is recorded nothing may differ from step to step but the contents of tensors.
  Given part(std::int64_t part, const Batch& batch, const std::function<Given(const Batch&)>& work);
  /// Queues what ends the step.
  void update(const std::function<void()>& work);
  /// Steps all of whose parts were repeated.
  std::int64_t replayed() const { return replayed_; }

 private:
  /// What must be the same of a batch for recorded work to fit.
  struct Form {
    std::vector<std::pair<Shape, DType>> tensors;
    std::int64_t global_size = 0, first = 0;
    bool operator==(const Form&) const = default;
  };
  static Form form_of(const Batch& batch);
  struct Part {
    Form form = {};
    Batch inputs = {};      // where the recorded work reads
    std::int64_t seen = 0;  // steps in a row with these shapes
    Given given = {};
    Traffic sums = {};  // over the ranks
    std::unique_ptr<Graph> graph;
  };
  Part& at(std::int64_t part) { return parts_[static_cast<std::size_t>(part)]; }
  bool is_last(std::int64_t part) const { return part + 1 == std::ssize(parts_); }

  Comm& comm_;
  Arena arena_;
  Tensor step_;
  std::vector<Part> parts_;
  bool replaying_ = false;  // all parts of this step so far
  std::int64_t updates_ = 0, replayed_ = 0;
  std::unique_ptr<Graph> update_;
};

}  // namespace ssn
