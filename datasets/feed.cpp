#include "datasets/feed.h"

#include <array>

#include "runtime/config.h"

namespace ssn {
namespace {

/// Those that a batch may have.
std::array<Tensor*, 6> tensors_of(Batch& batch) {
  return {&batch.images, &batch.samples, &batch.tokens, &batch.lengths, &batch.predicted, &batch.labels};
}

Batch pinned_batch(Batch batch) {
  if constexpr (build::has_cuda) {
    for (Tensor* tensor : tensors_of(batch))
      if (*tensor) *tensor = pinned(*tensor);
  }
  return batch;
}

std::unique_ptr<Staging> staging_for(Device device) {
  if constexpr (build::has_cuda) {
    if (device == Device::cuda) return make_staging();
  }
  return nullptr;
}

}  // namespace

Feed::Feed(const Loader& loader, const PrefetchOptions& options, Device device)
    : loader_(loader),
      staging_(staging_for(device)),
      batches_(
          [&loader, parts = options.parts, device](std::int64_t epoch, std::int64_t step, std::int64_t part) {
            return device == Device::cuda ? pinned_batch(loader.raw_batch(epoch, step, part, parts))
                                          : loader.batch(epoch, step, part, parts);
          },
          loader.steps_per_epoch(), options) {
  if (const ImageTransform* transform = loader.transform()) transform_ = transform->to(device);
}

void Feed::send(Batch batch) {
  std::vector<Tensor> tensors;
  for (Tensor* tensor : tensors_of(batch))
    if (*tensor) tensors.push_back(*tensor);
  staging_->start(std::move(tensors));
  coming_ = std::move(batch);
}

void Feed::start_next() {
  if (staging_ && !coming_ && batches_.ready()) send(*batches_.next());
}

std::optional<Batch> Feed::next() {
  if (!staging_) return batches_.next();
  if (!coming_) {
    std::optional<Batch> batch = batches_.next();
    if (!batch) return {};
    send(std::move(*batch));
  }
  Batch batch = std::move(*coming_);
  coming_.reset();
  const std::vector<Tensor> there = staging_->take();
  auto tensor = there.begin();
  for (Tensor* place : tensors_of(batch))
    if (*place) *place = *tensor++;
  if (batch.samples) finish(batch, *transform_, loader_.draws(batch.epoch));
  return batch;
}

}  // namespace ssn
