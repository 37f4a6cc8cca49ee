#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/training/config.h"

// How much memory training needs, and which segments are recomputed to need less.
namespace ssn {

/// Segments of a network whose activations are computed again in backward (layers/layer.h).
class Recompute {
 public:
  Recompute() = default;
  explicit Recompute(std::vector<std::string> segments) : segments_(std::move(segments)) {}
  /// Sorted.
  const std::vector<std::string>& segments() const { return segments_; }
  bool operator()(std::string_view segment) const;

 private:
  std::vector<std::string> segments_;
};

/// The names of all segments, in the order of the forward pass.
std::vector<std::string> network_segments(const TrainConfig& config, const InputShape& input);

/// Of a training, what is not in its options.
struct RunSize {
  static constexpr std::int64_t kUnknown = INT64_MAX;
  InputShape input = {};
  int ranks = 1;
  bool sums_there = true;            // what is summed over the ranks stays in the device's memory
  std::int64_t trained = kUnknown;   // samples: fewer than a batch make a smaller one
  std::int64_t measured = kUnknown;  // samples of the largest set that is measured
  bool saves = false;                // checkpoints: rank 0 keeps a copy of what is in them
};

/// Bytes of tensors that one rank takes of its device's memory for training, on the CPU beside the data set:
/// parameters, gradients, states of the optimizer, generated weights, activations, workspaces and there the
/// batches prepared ahead, as the pool of memory holds them (runtime/storage.h). Found by a dry run of steps
/// and an evaluation.
std::int64_t training_memory(const TrainConfig& config, const RunSize& size, const Recompute& recompute);

/// What --recompute and --memory ask for. Of a limit: as few segments, from the first on, as keep
/// training_memory within it. Names that are no segments, and limits that cannot be kept, are a UsageError.
Recompute choose_recompute(const TrainConfig& config, const RunSize& size);

/// Bytes of "800M" or "1.5G", units of 2^20 and 2^30; K and T likewise.
std::int64_t parse_memory(const std::string& text);
/// "1.5 GiB"
std::string memory_text(std::int64_t bytes);

/// The most memory that this process ever had, in bytes.
std::int64_t process_peak();

}  // namespace ssn
