#include "tools/training/recorder.h"

#include <array>

#include "runtime/config.h"
#include "runtime/trace.h"

namespace ssn {
namespace {

constexpr std::int64_t kWarmUp = 2;  // times that work is done before it is recorded

/// In CUDA builds alone is there someone who calls this.
std::unique_ptr<Graph> recorded(const std::function<void()>& work) {
  if constexpr (build::has_cuda) return record(work);
  fail("record", "this build has no CUDA");
}

std::array<Tensor Batch::*, 5> fields() {
  return {&Batch::images, &Batch::tokens, &Batch::lengths, &Batch::predicted, &Batch::labels};
}

bool same_shapes(const Batch& a, const Batch& b) {
  for (const auto field : fields()) {
    const Tensor &x = a.*field, &y = b.*field;
    if (bool(x) != bool(y) || x.shape() != y.shape() || x.dtype() != y.dtype()) return false;
  }
  return a.global_size == b.global_size && a.first == b.first;
}

}  // namespace

std::string unrecorded_because(const TrainConfig& config, int ranks) {
  if (ranks > 1 && config.overlap == "on")
    return "the sums over the ranks go on beside backward (--overlap off has them follow it)";
  if (config.shards > 0) return "with --shards the processor adds the running statistics";
  if constexpr (build::has_cuda) {
    if (!can_record()) return "SSN_SYNC=1 has each operation waited for";
  }
  return "";
}

Recorder::Recorder(std::int64_t parts)
    : arena_(Device::cuda),
      step_(Tensor::zeros({1}, DType::i64, Device::cuda)),
      parts_(static_cast<std::size_t>(parts)) {}

void Recorder::begin_step(std::int64_t step) {
  step_.fill(static_cast<double>(step));
  replaying_ = true;
}

Given Recorder::part(std::int64_t number, const Batch& batch,
                     const std::function<Given(const Batch&)>& work) {
  Part& part = parts_[static_cast<std::size_t>(number)];
  const Arena::Use use(arena_);
  const bool fits = same_shapes(part.inputs, batch);
  if (!part.graph) {
    part.seen = fits ? part.seen + 1 : 0;
    if (!fits) part.inputs = batch;
  }
  replaying_ = replaying_ && fits && (part.graph || part.seen >= kWarmUp);
  if (!replaying_) return work(batch);
  if (!part.graph) {
    const Span span("record");
    for (const auto field : fields())
      if (batch.*field) part.inputs.*field = (batch.*field).clone();
    part.graph = recorded([&] { part.given = work(part.inputs); });
  }
  const Span span("replay");
  for (const auto field : fields())
    if (batch.*field) (part.inputs.*field).copy_from(batch.*field);
  part.graph->replay();
  if (number + 1 == std::ssize(parts_)) ++replayed_;
  return part.given;
}

void Recorder::update(const std::function<void()>& work) {
  const Arena::Use use(arena_);
  if (updates_++ < kWarmUp) return work();
  if (!update_) update_ = recorded(work);
  update_->replay();
}

}  // namespace ssn
