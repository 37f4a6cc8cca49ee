#include <nccl.h>

#include <string_view>
#include <thread>
#include <vector>

#include "runtime/comm.h"
#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/nccl_wire.h"
#include "runtime/device_sum.h"
#include "runtime/log.h"
#include "runtime/queue.h"

namespace ssn {
namespace {

constexpr const char* kWhere = "sum over ranks";

/// Throws Error unless the call succeeded. `comm` may be null.
void check_nccl(ncclResult_t result, ncclComm_t comm, Where where) {
  if (result == ncclSuccess) [[likely]]
    return;
  const std::string_view detail = ncclGetLastError(comm);
  fail(where,
       "NCCL failed: {}{}{} (NCCL_DEBUG=INFO tells more; --graph off, if it would not be recorded with a "
       "step)",
       ncclGetErrorString(result), detail.empty() ? "" : ": ", detail);
}

class NcclSum : public DeviceSum {
 public:
  explicit NcclSum(Comm& comm) {
    ncclUniqueId id{};
    if (comm.rank() == 0) check_nccl(ncclGetUniqueId(&id), nullptr, "start NCCL");
    comm.broadcast(std::as_writable_bytes(std::span(&id, 1)));
    const CudaQueue& compute = cuda_queue();  // before the barrier: what a rank does alone may fail alone
    compute_ = compute.stream;
    cuda_check(cudaStreamCreateWithFlags(&queue_.stream, cudaStreamNonBlocking), "start NCCL");
    for (cudaEvent_t* event : {&computed_, &summed_})
      cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "start NCCL");
    comm.barrier();  // without it, many ranks' connections to the first time out
    check_nccl(ncclCommInitRank(&comm_, comm.size(), id, comm.rank()), nullptr, "start NCCL");
  }

  ~NcclSum() override {
    if (aborting_.joinable())
      aborting_.join();
    else if (comm_ != nullptr)
      warn_unless(ncclCommDestroy(comm_));
    for (cudaEvent_t event : {computed_, summed_}) cudaEventDestroy(event);
    cudaStreamDestroy(queue_.stream);
  }

  void start(void* data, std::int64_t count, DType dtype, DType wire) override {
    joined_ = false;
    guarded([&] {
      if (wire == dtype) {
        follow_compute();
        return all_reduce(data, count, dtype == DType::f32 ? ncclFloat32 : ncclFloat64);
      }
      auto* values = static_cast<float*>(data);
      // First: what was queued for the former user of this memory comes before, too.
      halves_.push_back(Storage::allocate(Device::cuda, static_cast<std::size_t>(count) * sizeof(bf16)));
      auto* half = static_cast<bf16*>(halves_.back().data());
      follow_compute();
      narrow(queue_, count, values, half);
      all_reduce(half, count, ncclBfloat16);
      widen(queue_, count, half, values);
    });
  }

  /// What travelled is free for what is queued after it.
  void join() override {
    if (joined_) return;
    guarded([&] {
      cuda_check(cudaEventRecord(summed_, queue_.stream), kWhere);
      cuda_check(cudaStreamWaitEvent(compute_, summed_, 0), kWhere);
    });
    halves_.clear();
    joined_ = true;
  }

  void wait() override {
    join();
    guarded([&] {
      for (;;) {
        const cudaError_t state = cudaStreamQuery(compute_);
        ncclResult_t meanwhile = ncclSuccess;
        check_nccl(ncclCommGetAsyncError(comm_, &meanwhile), comm_, kWhere);
        check_nccl(meanwhile, comm_, kWhere);
        if (state == cudaSuccess) return;
        if (state != cudaErrorNotReady) cuda_check(state, kWhere);
        cudaGetLastError();
        std::this_thread::yield();
      }
    });
  }

 private:
  /// What is queued here from now on comes after what the kernels' queue has by now.
  void follow_compute() {
    cuda_check(cudaEventRecord(computed_, compute_), kWhere);
    cuda_check(cudaStreamWaitEvent(queue_.stream, computed_, 0), kWhere);
  }

  void all_reduce(void* data, std::int64_t count, ncclDataType_t type) {
    const auto n = static_cast<std::size_t>(count);
    check_nccl(ncclAllReduce(data, data, n, type, ncclSum, comm_, queue_.stream), comm_, kWhere);
  }

  template <class F>
  void guarded(F&& f) {
    check(!aborting_.joinable(), kWhere, "NCCL has failed before");
    try {
      f();
    } catch (...) {
      abort();
      throw;
    }
  }

  /// The others may never come. Sums that wait for them on the device are ended, so that what waits for the
  /// device, as its memory's release does, goes on. NCCL itself comes back once no graph holds sums.
  void abort() {
    aborting_ = std::thread([comm = comm_] { warn_unless(ncclCommAbort(comm)); });
  }

  static void warn_unless(ncclResult_t ended) {
    if (ended != ncclSuccess) warn("NCCL's communicator could not be ended: {}", ncclGetLastError(nullptr));
  }

  ncclComm_t comm_ = nullptr;
  cudaStream_t compute_ = nullptr;
  CudaQueue queue_;                                    // of the sums
  std::vector<Storage> halves_;                        // what travels of the sums that are not joined
  cudaEvent_t computed_ = nullptr, summed_ = nullptr;  // behind what each queue has
  bool joined_ = true;
  std::thread aborting_;  // after an error
};

}  // namespace

std::unique_ptr<DeviceSum> make_nccl_sum(Comm& comm) {
  return std::make_unique<NcclSum>(comm);
}

}  // namespace ssn
