#pragma once
#include <memory>
#include <vector>

#include "runtime/tensor.h"

// What a GPU is to read next travels to it beside what it does. Defined in CUDA builds only.
namespace ssn {

/// Bytes of the CPU in pages that stay where they are (pinned), so that a GPU copies from them by itself;
/// from a caching pool. Any thread.
Storage pinned_storage(std::size_t bytes);
/// A copy of a CPU tensor there.
Tensor pinned(const Tensor& tensor);

/// Tensors on their way to the device of cuda_queue(), on a stream of their own, into two sets of buffers in
/// turns: while the queue uses one set, the other is filled.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  virtual ~Staging() = default;

  /// Starts copying these, of pinned(), and keeps them until that is done. Not twice without a take().
  virtual void start(std::vector<Tensor> tensors) = 0;
  /// The same tensors on the device, for what is queued from now on until take() is called again.
  virtual std::vector<Tensor> take() = 0;
};
std::unique_ptr<Staging> make_staging();

}  // namespace ssn
