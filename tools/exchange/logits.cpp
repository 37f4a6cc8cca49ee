#include "tools/exchange/logits.h"

namespace ssn {

void LogitsFile::add(const Batch& batch, const Tensor& logits) {
  const Tensor values = logits.to(Device::cpu);
  logits_.insert(logits_.end(), values.span<float>().begin(), values.span<float>().end());
  const Tensor there = batch.labels.to(Device::cpu);
  const auto labels = there.span<std::int32_t>();
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  const std::string folder = fmt::format("inputs/{}/", batches_++);
  const auto keep = [&](const char* name, const Tensor& tensor) {
    if (tensor) archive_.tensors[folder + name] = tensor.to(Device::cpu);
  };
  keep("images", batch.images);
  keep("tokens", batch.tokens);
  keep("lengths", batch.lengths);
  keep("predicted", batch.predicted);
}

void LogitsFile::write(const std::string& path) const {
  Archive archive = archive_;
  const std::int64_t rows = std::ssize(labels_),
                     columns = std::ssize(logits_) / std::max<std::int64_t>(rows, 1);
  archive.tensors["logits"] = Tensor::of<float>({rows, columns}, logits_);
  archive.tensors["labels"] = Tensor::of<std::int32_t>({rows}, labels_);
  save_checkpoint(path, archive);
}

}  // namespace ssn
