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
  fail(where, "NCCL failed: {}{}{} (NCCL_DEBUG=INFO tells more)", ncclGetErrorString(result),
       detail.empty() ? "" : ": ", detail);
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
    cuda_check(cudaEventCreateWithFlags(&computed_, cudaEventDisableTiming), "start NCCL");
    comm.barrier();  // without it, many ranks' connections to the first time out
    check_nccl(ncclCommInitRank(&comm_, comm.size(), id, comm.rank()), nullptr, "start NCCL");
  }

  /// After an error the others may never come: nothing is waited for.
  ~NcclSum() override {
    if (comm_ != nullptr && (failed_ ? ncclCommAbort(comm_) : ncclCommDestroy(comm_)) != ncclSuccess)
      warn("NCCL's communicator could not be ended: {}", ncclGetLastError(nullptr));
    cudaEventDestroy(computed_);
    cudaStreamDestroy(queue_.stream);
  }

  void start(void* data, std::int64_t count, DType dtype, DType wire) override {
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
  }

  void wait() override {
    guarded([&] {
      for (;;) {
        const cudaError_t state = cudaStreamQuery(queue_.stream);
        ncclResult_t meanwhile = ncclSuccess;
        check_nccl(ncclCommGetAsyncError(comm_, &meanwhile), comm_, kWhere);
        check_nccl(meanwhile, comm_, kWhere);
        if (state == cudaSuccess) return;
        if (state != cudaErrorNotReady) cuda_check(state, kWhere);
        cudaGetLastError();
        std::this_thread::yield();
      }
    });
    halves_.clear();
  }

 private:
  /// What is queued here from now on comes after what the kernels' queue has by now.
  void follow_compute() {
    cuda_check(cudaEventRecord(computed_, compute_), kWhere);
    cuda_check(cudaStreamWaitEvent(queue_.stream, computed_, 0), kWhere);
  }

  void all_reduce(void* data, std::int64_t count, ncclDataType_t type) {
    const auto n = static_cast<std::size_t>(count);
    guarded([&] {
      check_nccl(ncclAllReduce(data, data, n, type, ncclSum, comm_, queue_.stream), comm_, kWhere);
    });
  }

  template <class F>
  void guarded(F&& f) {
    try {
      f();
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  ncclComm_t comm_ = nullptr;
  cudaStream_t compute_ = nullptr;
  CudaQueue queue_;              // of the sums
  std::vector<Storage> halves_;  // what travels of the sums that are not waited for
  cudaEvent_t computed_ = nullptr;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<DeviceSum> make_nccl_sum(Comm& comm) {
  return std::make_unique<NcclSum>(comm);
}

}  // namespace ssn
