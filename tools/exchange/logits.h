#pragma once
#include <string>

#include "tools/training/task.h"

namespace ssn {

/// What a network gave for a test set, for comparing it with the same network elsewhere: `logits` (rows,
/// classes) and `labels` (rows), and in `inputs/<batch>/` what it read: images (n, h, w, c), or tokens,
/// lengths and predicted.
class LogitsFile {
 public:
  /// Keeps a batch; the set is measured in order.
  void add(const Batch& batch, const Tensor& logits);
  void write(const std::string& path) const;

 private:
  Archive archive_;
  std::vector<float> logits_;
  std::vector<std::int32_t> labels_;
  std::int64_t batches_ = 0;
};

}  // namespace ssn
