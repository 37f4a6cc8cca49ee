#include "runtime/staging.h"

#include <array>
#include <cstring>

#include "runtime/cuda/cuda_check.h"
#include "runtime/queue.h"

namespace ssn {
namespace {

constexpr const char* kWhere = "copy to device";

/// A set of buffers.
struct Slot {
  std::vector<Tensor> host;      // what is copied
  std::vector<Storage> buffers;  // for it, as large as was ever needed
  cudaEvent_t copied = nullptr;  // on the stream of the copies
  cudaEvent_t used = nullptr;    // on the queue: behind the last work that reads the buffers, or whose
                                 // memory they were before

  Slot() {
    for (cudaEvent_t* event : {&copied, &used})
      cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), kWhere);
  }
  Slot(const Slot&) = delete;
  ~Slot() {
    for (cudaEvent_t event : {copied, used}) cudaEventDestroy(event);
  }
};

class TwoSlots : public Staging {
 public:
  TwoSlots() : queue_(cuda_queue()) {
    cuda_check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), kWhere);
    for (const Slot& slot : slots_) cuda_check(cudaEventRecord(slot.used, queue_.stream), kWhere);
  }
  /// What is pinned goes back to be written anew, so its copies must be done.
  ~TwoSlots() override {
    cudaStreamSynchronize(copies_);
    cudaStreamDestroy(copies_);
  }

  void start(std::vector<Tensor> tensors) override {
    check(!started_, kWhere, "start() is called twice without take()");
    Slot& slot = slots_[next_];
    if (!slot.host.empty()) cuda_check(cudaEventSynchronize(slot.copied), kWhere);
    slot.host = std::move(tensors);
    reserve(slot);
    cuda_check(cudaStreamWaitEvent(copies_, slot.used, 0), kWhere);
    for (std::size_t i = 0; i < slot.host.size(); ++i) {
      const Tensor& from = slot.host[i];
      if (from.size() > 0)
        cuda_check(cudaMemcpyAsync(slot.buffers[i].data(), from.raw(), from.bytes(), cudaMemcpyHostToDevice,
                                   copies_),
                   kWhere);
    }
    cuda_check(cudaEventRecord(slot.copied, copies_), kWhere);
    started_ = true;
  }

  std::vector<Tensor> take() override {
    check(started_, kWhere, "take() is called without start()");
    started_ = false;
    Slot& slot = slots_[next_];
    next_ = 1 - next_;
    cuda_check(cudaEventRecord(slots_[next_].used, queue_.stream), kWhere);
    cuda_check(cudaStreamWaitEvent(queue_.stream, slot.copied, 0), kWhere);
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < slot.host.size(); ++i)
      tensors.push_back(Tensor::over(slot.buffers[i], slot.host[i].shape(), slot.host[i].dtype()));
    return tensors;
  }

 private:
  /// A new buffer may be memory that work in the queue still reads or writes.
  void reserve(Slot& slot) {
    slot.buffers.resize(std::max(slot.buffers.size(), slot.host.size()));
    bool grown = false;
    for (std::size_t i = 0; i < slot.host.size(); ++i) {
      if (slot.buffers[i] && slot.buffers[i].bytes() >= slot.host[i].bytes()) continue;
      slot.buffers[i] = Storage::allocate(Device::cuda, slot.host[i].bytes());
      grown = true;
    }
    if (grown) cuda_check(cudaEventRecord(slot.used, queue_.stream), kWhere);
  }

  CudaQueue& queue_;
  cudaStream_t copies_ = nullptr;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;  // the slot of the next start()
  bool started_ = false;
};

}  // namespace

Tensor pinned(const Tensor& tensor) {
  Tensor copy = Tensor::over(pinned_storage(tensor.bytes()), tensor.shape(), tensor.dtype());
  if (tensor.size() > 0) std::memcpy(copy.raw(), tensor.raw(), tensor.bytes());
  return copy;
}

std::unique_ptr<Staging> make_staging() {
  return std::make_unique<TwoSlots>();
}

}  // namespace ssn
