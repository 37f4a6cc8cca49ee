#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "cuda_on_host/runtime.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/runtime_error.h"

struct CUstream_st {};

namespace cuda_on_host {
namespace {

struct Device {  // never destroyed: static objects may free memory late
  std::mutex mutex;
  std::map<const char*, std::size_t> allocations;
  std::set<cudaStream_t> streams;
  std::size_t in_use = 0, total = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                                  static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
};
Device& device() {
  static Device& d = *new Device;
  return d;
}

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

Place place_of(const void* begin, std::size_t bytes) {
  const auto* p = static_cast<const char*>(begin);
  const auto& all = device().allocations;
  auto next = all.upper_bound(p);
  if (next == all.begin()) return Place::host;
  const auto& [start, size] = *std::prev(next);
  if (p >= start + size) return Place::host;
  return p + bytes <= start + size ? Place::device : Place::beyond;
}

cudaError_t record_error(cudaError_t code, std::string text) {
  t_texts[code] = std::move(text);
  return t_last = code;
}

cudaError_t check_stream(cudaStream_t stream) {
  std::lock_guard lock(device().mutex);
  if (!stream || device().streams.contains(stream)) return cudaSuccess;
  return error(cudaErrorInvalidResourceHandle, "no such stream");
}

cudaError_t copy_to_symbol(void* symbol, std::size_t size, const void* from, std::size_t bytes,
                           std::size_t offset) {
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
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
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
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : error(cudaErrorInvalidDevice, "device {} of 1", device);
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  std::lock_guard lock(device().mutex);
  *total = device().total;
  *unused = device().total - device().in_use;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags > cudaStreamNonBlocking) return error(cudaErrorInvalidValue, "stream flags {}", flags);
  std::lock_guard lock(device().mutex);
  *stream = new CUstream_st;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard lock(device().mutex);
  if (!device().streams.erase(stream)) return error(cudaErrorInvalidResourceHandle, "no such stream");
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return check_stream(stream);
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  std::lock_guard lock(device().mutex);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  // Exactly these bytes, so that AddressSanitizer sees the end.
  if (bytes > device().total - device().in_use || posix_memalign(memory, 256, bytes)) {
    return error(cudaErrorMemoryAllocation, "{} bytes of {}, {} in use", bytes, device().total,
                 device().in_use);
  }
  std::memset(*memory, 0xFF, bytes);  // NaN
  device().allocations[static_cast<const char*>(*memory)] = bytes;
  device().in_use += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::lock_guard lock(device().mutex);
  if (!memory) return cudaSuccess;
  const auto it = device().allocations.find(static_cast<const char*>(memory));
  if (it == device().allocations.end())
    return error(cudaErrorInvalidValue, "{} is not the begin of a live allocation", memory);
  device().in_use -= it->second;
  device().allocations.erase(it);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream) {
  const cudaError_t e = check_stream(stream);
  return e == cudaSuccess ? cudaMalloc(memory, bytes) : e;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  const cudaError_t e = check_stream(stream);
  return e == cudaSuccess ? cudaFree(memory) : e;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  std::lock_guard lock(device().mutex);
  if (bytes == 0) return cudaSuccess;
  const bool known = kind != cudaMemcpyDefault;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (const auto e = check_side("target", to, bytes, known, to_device); e != cudaSuccess) return e;
  if (const auto e = check_side("source", from, bytes, known, from_device); e != cudaSuccess) return e;
  auto *t = static_cast<char*>(to), *f = static_cast<char*>(const_cast<void*>(from));
  if (t < f + bytes && f < t + bytes) return error(cudaErrorInvalidValue, "copy: source and target overlap");
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const cudaError_t e = check_stream(stream);
  return e == cudaSuccess ? cudaMemcpy(to, from, bytes, kind) : e;
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  std::lock_guard lock(device().mutex);
  if (bytes == 0) return cudaSuccess;
  if (place_of(to, bytes) != Place::device) {
    return error(cudaErrorInvalidValue, "memset: the {} bytes at {} do not lie in a device allocation", bytes,
                 to);
  }
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const cudaError_t e = check_stream(stream);
  return e == cudaSuccess ? cudaMemset(to, value, bytes) : e;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  std::lock_guard lock(device().mutex);
  const bool on_device = place_of(p, 1) == Place::device;
  void* q = const_cast<void*>(p);
  *a = {on_device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, on_device ? 0 : -1,
        on_device ? q : nullptr, on_device ? nullptr : q};
  return cudaSuccess;
}
