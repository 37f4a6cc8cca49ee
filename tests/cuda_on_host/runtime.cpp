#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda_on_host/runtime.h"
#include "tests/cuda_on_host/capability.h"
#include "tests/cuda_on_host/capture.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/runtime_error.h"
#include "tests/cuda_on_host/streams.h"

namespace cuda_on_host {
namespace {

struct Allocation {
  std::size_t bytes;
  int device;
};
struct Device {  // all of them; never destroyed: static objects may free memory late
  std::mutex mutex;
  std::map<const char*, Allocation> allocations;
  std::map<const char*, std::size_t> pinned;  // host memory, bytes
  std::size_t in_use = 0, total = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                                  static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
};
Device& device() {
  static Device& d = *new Device;
  return d;
}

/// The numbers in CUDA_VISIBLE_DEVICES.
const std::vector<int>& visible_devices() {
  static const std::vector<int> devices = [] {
    const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
    std::istringstream text(value ? value : "0");
    std::vector<int> found;
    for (std::string number; std::getline(text, number, ',');) found.push_back(std::atoi(number.c_str()));
    return found;
  }();
  return devices;
}
cudaError_t check_device(int device) {
  if (visible_devices().empty()) return error(cudaErrorNoDevice, "CUDA_VISIBLE_DEVICES names no device");
  const auto count = std::ssize(visible_devices());
  return device >= 0 && device < count ? cudaSuccess
                                       : error(cudaErrorInvalidDevice, "device {} of {}", device, count);
}

thread_local int t_device = 0;
thread_local cudaError_t t_last = cudaSuccess;
thread_local std::map<cudaError_t, std::string> t_texts;  // of each code's last error

const char* place_text(Place p) {
  return p == Place::device ? "device" : "host";
}

/// One side of a copy: does it lie where the kind of the copy says?
cudaError_t check_side(const char* side, const void* p, std::size_t bytes, bool known, bool on_device) {
  const Place place = place_of(p, bytes);
  if (place == Place::beyond) {
    return error(cudaErrorInvalidValue,
                 "copy: its {} is {} bytes at {}, more than are left in their allocation", side, bytes, p);
  }
  if (known && (place == Place::device) != on_device) {
    return error(cudaErrorInvalidValue, "copy: its {}, {}, is {} memory, the copy's kind says {} memory",
                 side, p, place_text(place), place_text(on_device ? Place::device : Place::host));
  }
  return cudaSuccess;
}

}  // namespace

std::mutex& device_mutex() {
  return device().mutex;
}

namespace {
/// The one that begins at or before p and reaches it; none: a null pointer.
const std::pair<const char* const, Allocation>* allocation_at(const char* p) {
  const auto& all = device().allocations;
  const auto next = all.upper_bound(p);
  if (next == all.begin()) return nullptr;
  const auto& found = *std::prev(next);
  return p < found.first + found.second.bytes ? &found : nullptr;
}
}  // namespace

Place place_of(const void* begin, std::size_t bytes) {
  const auto* p = static_cast<const char*>(begin);
  const auto* found = allocation_at(p);
  if (!found) return Place::host;
  return p + bytes <= found->first + found->second.bytes ? Place::device : Place::beyond;
}
int device_of(const void* begin, std::size_t bytes) {
  std::lock_guard lock(device().mutex);
  if (place_of(begin, bytes) != Place::device) return -1;
  return allocation_at(static_cast<const char*>(begin))->second.device;
}
int current_device() {
  return t_device;
}

namespace {

/// The mutex must be held.
bool is_pinned(const void* begin, std::size_t bytes) {
  const auto* p = static_cast<const char*>(begin);
  const auto next = device().pinned.upper_bound(p);
  return next != device().pinned.begin() && p + bytes <= std::prev(next)->first + std::prev(next)->second;
}

/// Pinned memory as it is when a copy from it is queued. The mutex must be held.
struct PinnedSource {
  const char* from;
  std::size_t bytes, hash;

  static std::size_t hash_of(const char* from, std::size_t bytes) {
    return std::hash<std::string_view>()({from, bytes});
  }
  PinnedSource(const void* source, std::size_t n)
      : from(is_pinned(source, n) ? static_cast<const char*>(source) : nullptr),
        bytes(n),
        hash(from ? hash_of(from, n) : 0) {}
  /// Whether it still is.
  cudaError_t check() const {
    if (!from) return cudaSuccess;
    if (!is_pinned(from, bytes))
      return error(cudaErrorInvalidValue, "copy: its source, pinned memory, was freed before it was done");
    if (hash_of(from, bytes) != hash)
      return error(cudaErrorInvalidValue, "copy: its source, pinned memory, was written before it was done");
    return cudaSuccess;
  }
};

}  // namespace

cudaError_t record_error(cudaError_t code, std::string text) {
  t_texts[code] = std::move(text);
  return t_last = code;
}

cudaError_t copy_to_symbol(void* symbol, std::size_t size, const void* from, std::size_t bytes,
                           std::size_t offset) {
  if (const cudaError_t e = check_allowed("cudaMemcpyToSymbol"); e != cudaSuccess) return e;
  if (offset > size || bytes > size - offset) {
    return error(cudaErrorInvalidValue, "copy of {} bytes to offset {} of a variable of {} bytes", bytes,
                 offset, size);
  }
  std::memcpy(static_cast<char*>(symbol) + offset, from, bytes);
  return cudaSuccess;
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorCudartUnloading: return "cudaErrorCudartUnloading";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t e) {
  const auto text = t_texts.find(e);
  return text == t_texts.end() ? (e == cudaSuccess ? "no error" : "an error") : text->second.c_str();
}
cudaError_t cudaGetLastError() {
  return std::exchange(t_last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return t_last;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(visible_devices().size());
  return *count > 0 ? cudaSuccess : check_device(0);
}
cudaError_t cudaGetDevice(int* device) {
  *device = t_device;
  return check_device(t_device);
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t e = check_device(device); e != cudaSuccess) return e;
  t_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  if (const cudaError_t e = check_device(device); e != cudaSuccess) return e;
  const std::string text =
      fmt::format("0000:{:02x}:00.0", visible_devices()[static_cast<std::size_t>(device)]);
  if (std::ssize(text) >= bytes)
    return error(cudaErrorInvalidValue, "{} needs more than {} bytes", text, bytes);
  std::memcpy(id, text.c_str(), text.size() + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t e = check_device(device); e != cudaSuccess) return e;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = capability() / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = capability() % 10; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(most_shared());
      return cudaSuccess;
  }
  return error(cudaErrorInvalidValue, "attribute {} is none", static_cast<int>(attribute));
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t e = check_allowed("cudaDeviceSynchronize"); e != cudaSuccess) return e;
  return run_everything();
}
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  std::lock_guard lock(device().mutex);
  *total = device().total;
  *unused = device().total - device().in_use;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (const cudaError_t e = check_allowed("cudaMalloc"); e != cudaSuccess) return e;
  std::lock_guard lock(device().mutex);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  // Exactly these bytes, so that AddressSanitizer sees the end.
  if (bytes > device().total - device().in_use || posix_memalign(memory, 256, bytes)) {
    return error(cudaErrorMemoryAllocation, "{} bytes of {}, {} in use", bytes, device().total,
                 device().in_use);
  }
  std::memset(*memory, 0xFF, bytes);  // NaN
  device().allocations[static_cast<const char*>(*memory)] = {bytes, t_device};
  device().in_use += bytes;
  return cudaSuccess;
}
namespace {

cudaError_t free_now(void* memory) {
  std::lock_guard lock(device().mutex);
  const auto it = device().allocations.find(static_cast<const char*>(memory));
  if (it == device().allocations.end())
    return error(cudaErrorInvalidValue, "{} is not the begin of a live allocation", memory);
  device().in_use -= it->second.bytes;
  device().allocations.erase(it);
  std::free(memory);
  return cudaSuccess;
}

/// The mutex must be held.
cudaError_t check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool known = kind != cudaMemcpyDefault;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (const auto e = check_side("target", to, bytes, known, to_device); e != cudaSuccess) return e;
  if (const auto e = check_side("source", from, bytes, known, from_device); e != cudaSuccess) return e;
  const auto *t = static_cast<const char*>(to), *f = static_cast<const char*>(from);
  if (t < f + bytes && f < t + bytes) return error(cudaErrorInvalidValue, "copy: source and target overlap");
  return cudaSuccess;
}
cudaError_t check_fill(const void* to, std::size_t bytes) {
  if (place_of(to, bytes) == Place::device) return cudaSuccess;
  return error(cudaErrorInvalidValue, "memset: the {} bytes at {} do not lie in a device allocation", bytes,
               to);
}

/// Checks before the work is queued and, for the memory may be gone, when it is done.
cudaError_t enqueue_checked(cudaStream_t stream, const std::function<cudaError_t()>& checks,
                            const std::function<void()>& work) {
  const auto checked = [=] {
    std::lock_guard lock(device().mutex);
    return checks();
  };
  if (const cudaError_t e = checked(); e != cudaSuccess) return e;
  return enqueue(stream, [=] {
    std::lock_guard lock(device().mutex);
    const cudaError_t e = checks();
    if (e == cudaSuccess) work();
    return e;
  });
}

}  // namespace

cudaError_t cudaFree(void* memory) {
  if (const cudaError_t e = check_allowed("cudaFree"); e != cudaSuccess) return e;
  const cudaError_t e = run_everything();
  return e == cudaSuccess && memory ? free_now(memory) : e;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  if (const cudaError_t e = check_allowed("cudaHostAlloc"); e != cudaSuccess) return e;
  if (flags != cudaHostAllocDefault) return error(cudaErrorInvalidValue, "flags {}", flags);
  std::lock_guard lock(device().mutex);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(memory, 256, bytes)) return error(cudaErrorMemoryAllocation, "{} bytes", bytes);
  std::memset(*memory, 0xFF, bytes);  // NaN
  device().pinned[static_cast<const char*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t e = check_allowed("cudaFreeHost"); e != cudaSuccess) return e;
  std::lock_guard lock(device().mutex);
  if (memory && device().pinned.erase(static_cast<const char*>(memory)) == 0)
    return error(cudaErrorInvalidValue, "{} is not the begin of pinned memory", memory);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream) {
  const cudaError_t e = check_stream(stream);
  return e == cudaSuccess ? cudaMalloc(memory, bytes) : e;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  if (is_captured(stream)) return refuse_capture(stream, "cudaFreeAsync is not recorded here");
  return enqueue(stream, [=] { return memory ? free_now(memory) : cudaSuccess; });
}

namespace {

/// A copy that is recorded reads and writes what is there when it is repeated.
cudaError_t record_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                        cudaStream_t stream) {
  const bool pageable = [&] {
    std::lock_guard lock(device().mutex);
    const auto stays = [&](const void* p) {
      return place_of(p, bytes) != Place::host || is_pinned(p, bytes);
    };
    return !stays(to) || !stays(from);
  }();
  if (pageable) return refuse_capture(stream, "a copy from or to pageable memory is not for a capture");
  return enqueue_checked(
      stream, [=] { return check_copy(to, from, bytes, kind); }, [=] { std::memcpy(to, from, bytes); });
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return check_stream(stream);
  const PinnedSource source = [&] {
    std::lock_guard lock(device().mutex);
    return PinnedSource(from, bytes);
  }();
  if (is_captured(stream)) return record_copy(to, from, bytes, kind, stream);
  return enqueue_checked(
      stream,
      [=] {
        const cudaError_t e = source.check();
        return e == cudaSuccess ? check_copy(to, from, bytes, kind) : e;
      },
      [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return check_stream(stream);
  return enqueue_checked(
      stream, [=] { return check_fill(to, bytes); }, [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  const int where = device_of(p, 1);
  void* q = const_cast<void*>(p);
  std::lock_guard lock(device().mutex);
  if (where >= 0)
    *a = {cudaMemoryTypeDevice, where, q, nullptr};
  else if (is_pinned(p, 1))
    *a = {cudaMemoryTypeHost, t_device, q, q};
  else
    *a = {cudaMemoryTypeUnregistered, -1, nullptr, q};
  return cudaSuccess;
}
