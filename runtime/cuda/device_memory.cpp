#include "runtime/device_memory.h"

#include <atomic>
#include <cstdio>

#include "runtime/cuda/cuda_check.h"
#include "runtime/cuda/late/libraries.h"
#include "runtime/flavour.h"

namespace ssn {

namespace {

std::atomic<int> g_device = 0;
std::atomic<bool> g_taken = false;

int attribute(int device, cudaDeviceAttr name) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, name, device), "device's attribute");
  return value;
}
/// 90 for 9.0.
int capability_of(int device) {
  return 10 * attribute(device, cudaDevAttrComputeCapabilityMajor) +
         attribute(device, cudaDevAttrComputeCapabilityMinor);
}

/// CUDA's current device is each thread's own.
void enter_device() {
  thread_local bool entered = false;
  if (entered) return;
  const std::string missing = missing_for_cuda(g_device);
  check(missing.empty(), "cuda_queue", "this machine {}; or use the CPU", missing);
  g_taken = true;
  cuda_check(cudaSetDevice(g_device), "cuda_queue");
  entered = true;
}

}  // namespace

std::string use_cuda_device(int device) {
  check(!g_taken || g_device == device, "use device", "device {} is in use: another one must be taken before",
        g_device.load());
  g_device = device;
  enter_device();
  char bus[32] = "";
  cuda_check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "use device");
  return bus;
}

CudaQueue& cuda_queue() {
  enter_device();
  static CudaQueue queue = [] {
    CudaQueue q;
    cuda_check(cudaStreamCreateWithFlags(&q.stream, cudaStreamNonBlocking), "cuda_queue");
    return q;
  }();
  return queue;
}

int cuda_compute_capability() {
  enter_device();
  return capability_of(g_device);
}

std::int64_t cuda_shared_memory() {
  enter_device();
  static const int bytes = attribute(g_device, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return bytes;
}

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::string missing_for_cuda(int device, bool sums) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (result != cudaSuccess || count == 0)
    return fmt::format("sees no CUDA device, or no driver for it ({}; nvidia-smi lists what there is)",
                       cudaGetErrorString(result == cudaSuccess ? cudaErrorNoDevice : result));
  if (const int found = capability_of(device), least = build::least_capability; found < least)
    return fmt::format(
        "sees a GPU of compute capability {}.{}, and this build is for {}.{} and newer ({}; "
        "CUDA_VISIBLE_DEVICES hides a GPU)",
        found / 10, found % 10, least / 10, least % 10,
        found >= 75 ? fmt::format("for this one build with -DCMAKE_CUDA_ARCHITECTURES={}", found)
                    : "the kernels need 7.5");
  if constexpr (build::cuda_on_host)
    return "";
  else
    return missing_cuda_libraries(sums);
}

namespace memory {
namespace {

void report(cudaError_t result) {
  if (result == cudaSuccess || result == cudaErrorCudartUnloading) return;
  const std::string reason = fmt::format("{}: {}", cudaGetErrorName(result), cudaGetErrorString(result));
  std::fprintf(stderr, "%s\n", error_text("release", reason).c_str());
}

/// While it lives, this thread may take and give back memory though it records (runtime/graph.h): neither
/// becomes part of the recording.
class Unrecorded {
 public:
  Unrecorded() { exchange(); }
  ~Unrecorded() { exchange(); }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

 private:
  void exchange() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

void* allocate(CudaQueue&, std::size_t bytes) {
  const Unrecorded unrecorded;
  void* p = nullptr;
  const cudaError_t result = cudaMalloc(&p, bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t unused = 0, all = 0;
    cuda_check(cudaMemGetInfo(&unused, &all), "allocate");
    fail("allocate", "no device memory for {} bytes; {} of the device's {} bytes are free: lower --batch",
         bytes, unused, all);
  }
  cuda_check(result, "allocate");
  return p;
}

// Runs in destructors, so it reports and does not throw. cudaFree waits for the device, so work that still
// uses the memory ends first; at the end of the program the driver may be gone, and the memory with it.
void release(CudaQueue&, void* data) {
  const Unrecorded unrecorded;
  report(cudaFree(data));
}

void* allocate_pinned(std::size_t bytes) {
  enter_device();
  const Unrecorded unrecorded;
  void* p = nullptr;
  const cudaError_t result = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
  check(result != cudaErrorMemoryAllocation, "allocate",
        "no pinned memory for {} bytes of a batch: lower --batch, or raise the limit of the container",
        bytes);
  cuda_check(result, "allocate");
  return p;
}

void release_pinned(void* data) {
  const Unrecorded unrecorded;
  report(cudaFreeHost(data));
}

void fill_bytes(CudaQueue& q, void* data, int value, std::size_t bytes) {
  if (bytes) cuda_check(cudaMemsetAsync(data, value, bytes, q.stream), "fill");
}

void copy(CudaQueue& q, void* to, const void* from, std::size_t bytes) {
  if (!bytes) return;
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, q.stream), "copy");
  const auto on_device = [](const void* p) {
    cudaPointerAttributes a{};
    cuda_check(cudaPointerGetAttributes(&a, p), "copy");
    return a.type == cudaMemoryTypeDevice;
  };
  if (!on_device(to) || !on_device(from)) synchronize(q);
}

void synchronize(CudaQueue& q) {
  cuda_check(cudaStreamSynchronize(q.stream), "synchronize");
}

}  // namespace memory
}  // namespace ssn
