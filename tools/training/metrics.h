#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/comm.h"
#include "runtime/tensor.h"

namespace ssn {

/// Sums over the samples that were seen.
class Metrics {
 public:
  /// Wrong at k: the label is not among the k largest logits. `ranks`: label_ranks() of the samples, f32 (n).
  void add(const Tensor& ranks, double loss_sum);

  double samples() const { return sums_[0]; }
  /// Mean over the samples.
  double loss() const { return sums_[1] / sums_[0]; }
  /// Percent.
  double error1() const { return 100 * sums_[2] / sums_[0]; }
  double error5() const { return 100 * sums_[3] / sums_[0]; }

  /// For checkpoints: samples, loss, wrong at 1, wrong at 5.
  using Sums = std::array<double, 4>;
  const Sums& sums() const { return sums_; }
  void set_sums(const Sums& sums) { sums_ = sums; }

 private:
  Sums sums_{};
};

/// The sum of what each rank has, as many on each: of rank 0 in their order, then of rank 1, ... The same
/// bits on every rank, and wherever the same parts are divided otherwise. Collective.
Metrics sum_over(Comm& comm, std::span<const Metrics> mine);

/// JSON with numbers rounded for reading: 4 digits after the point.
nlohmann::ordered_json rounded(double value);

/// The file metrics.jsonl: a line an epoch. Kept whole, and replaced at each line.
class MetricsFile {
 public:
  MetricsFile() = default;
  /// A new one; nothing is written yet.
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  /// Of a run that goes on after so many epochs: with their lines in `before`. Warns of lines that are
  /// missing or damaged: nothing is computed from them.
  MetricsFile(std::string path, const std::string& before, std::int64_t epochs);
  void append(const nlohmann::ordered_json& line);
  /// Of the last line that there was; 0 where it has no such number.
  double last(const char* name) const;

 private:
  std::string path_, text_;
  nlohmann::json last_ = nlohmann::json::object();
};

}  // namespace ssn
