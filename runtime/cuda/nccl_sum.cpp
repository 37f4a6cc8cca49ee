#include <nccl.h>

#include <string_view>
#include <thread>

#include "runtime/comm.h"
#include "runtime/cuda/cuda_check.h"
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
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "start NCCL");
    cuda_check(cudaEventCreateWithFlags(&computed_, cudaEventDisableTiming), "start NCCL");
    comm.barrier();  // without it, many ranks' connections to the first time out
    check_nccl(ncclCommInitRank(&comm_, comm.size(), id, comm.rank()), nullptr, "start NCCL");
  }

  /// After an error the others may never come: nothing is waited for.
  ~NcclSum() override {
    if (comm_ != nullptr && (failed_ ? ncclCommAbort(comm_) : ncclCommDestroy(comm_)) != ncclSuccess)
      warn("NCCL's communicator could not be ended: {}", ncclGetLastError(nullptr));
    cudaEventDestroy(computed_);
    cudaStreamDestroy(stream_);
  }

  void start(void* data, std::int64_t count, DType dtype) override {
    cuda_check(cudaEventRecord(computed_, compute_), kWhere);
    cuda_check(cudaStreamWaitEvent(stream_, computed_, 0), kWhere);
    const ncclDataType_t type = dtype == DType::f32 ? ncclFloat32 : ncclFloat64;
    guarded([&] {
      check_nccl(ncclAllReduce(data, data, static_cast<std::size_t>(count), type, ncclSum, comm_, stream_),
                 comm_, kWhere);
    });
  }

  void wait() override {
    guarded([&] {
      for (;;) {
        const cudaError_t state = cudaStreamQuery(stream_);
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
  cudaStream_t compute_ = nullptr, stream_ = nullptr;
  cudaEvent_t computed_ = nullptr;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<DeviceSum> make_nccl_sum(Comm& comm) {
  return std::make_unique<NcclSum>(comm);
}

}  // namespace ssn
