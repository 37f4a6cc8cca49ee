#pragma once
#include <memory>

#include "datasets/loader.h"
#include "runtime/staging.h"

namespace ssn {

/// A loader's batches, prepared ahead, on the device that computes with them. What a GPU reads next is put
/// into pinned memory by the loader's thread, images as bytes, and travels beside the work that is queued;
/// there images are changed and normalised, before what is queued next.
class Feed {
 public:
  /// The loader must outlive it.
  Feed(const Loader& loader, const PrefetchOptions& options, Device device);
  /// The next batch; none after the last. On a GPU its tensors are for what is queued until next() is called
  /// again. Throws what preparing it threw.
  std::optional<Batch> next();
  /// Once the work with this batch is queued: the next one starts on its way to the GPU, if it is prepared.
  void start_next();

 private:
  void send(Batch batch);

  const Loader& loader_;
  std::unique_ptr<Staging> staging_;         // none: the CPU computes
  std::optional<ImageTransform> transform_;  // the loader's, on the GPU
  Prefetcher batches_;
  std::optional<Batch> coming_;  // its copies are started
};

}  // namespace ssn
