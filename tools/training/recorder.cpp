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

}  // namespace

std::string unrecorded_because(const TrainConfig& config, bool sums_there) {
  if (config.shards > 0) return "with --shards the processor adds the running statistics";
  if (!sums_there) return "the sums over the ranks go through the processors' memory (SSN_SUM, or no NCCL)";
  if constexpr (build::has_cuda) {
    if (!can_record()) return "SSN_SYNC=1 has each operation waited for";
  }
  return "";
}

Recorder::Recorder(Comm& comm, std::int64_t parts)
    : comm_(comm),
      arena_(Device::cuda),
      step_(Tensor::zeros({1}, DType::i64, Device::cuda)),
      parts_(static_cast<std::size_t>(parts)) {}

Recorder::Form Recorder::form_of(const Batch& batch) {
  Form form{.global_size = batch.global_size, .first = batch.first};
  for (const auto field : fields()) form.tensors.emplace_back((batch.*field).shape(), (batch.*field).dtype());
  return form;
}

void Recorder::begin_step(std::int64_t step) {
  step_.fill(static_cast<double>(step));
  replaying_ = true;
}

void Recorder::prepare(std::int64_t number, const Batch& batch) {
  Part& part = at(number);
  Form form = form_of(batch);
  const bool fits = part.form == form;
  if (!part.graph) {
    part.seen = fits ? part.seen + 1 : 0;
    part.form = std::move(form);
  }
  replaying_ = replaying_ && fits && (part.graph || part.seen >= kWarmUp);
  if (is_last(number) && comm_.size() > 1) replaying_ = comm_.agree(!replaying_) == 0;
}

Given Recorder::part(std::int64_t number, const Batch& batch,
                     const std::function<Given(const Batch&)>& work) {
  Part& part = at(number);
  const Arena::Use use(arena_);
  if (!replaying_) return work(batch);
  if (!part.graph) {
    const Span span("record");
    part.inputs = batch;
    for (const auto field : fields())
      if (batch.*field) part.inputs.*field = (batch.*field).clone();
    part.sums = comm_.record_sums([&] { part.graph = recorded([&] { part.given = work(part.inputs); }); });
  }
  const Span span("replay");
  for (const auto field : fields())
    if (batch.*field) (part.inputs.*field).copy_from(batch.*field);
  part.graph->replay();
  comm_.repeat_sums(part.sums);
  if (is_last(number)) ++replayed_;
  return part.given;
}

void Recorder::update(const std::function<void()>& work) {
  const Arena::Use use(arena_);
  if (updates_++ < kWarmUp) return work();
  if (!update_) update_ = recorded(work);
  update_->replay();
}

}  // namespace ssn
