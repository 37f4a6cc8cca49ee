#pragma once
#include <cuda_runtime.h>

#include <string>

#include "tests/cuda_on_host/schedules.h"

// What tests of streams are made of.
namespace cuda_on_host::test {

/// While it lives, queued work waits for someone who waits for it.
struct Late {
  Late() { cuda_on_host::streams() = cuda_on_host::Streams::late; }
  ~Late() {
    cudaDeviceSynchronize();
    cuda_on_host::streams() = cuda_on_host::Streams::prompt;
  }
};

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(handle); }
};
struct Event {
  cudaEvent_t handle = nullptr;
  Event() { cudaEventCreateWithFlags(&handle, cudaEventDisableTiming); }
  ~Event() { cudaEventDestroy(handle); }
};
/// Four bytes of device memory, 0 at first.
struct Word {
  unsigned* at = nullptr;
  Word() {
    cudaMalloc(&at, sizeof *at);
    cudaMemset(at, 0, sizeof *at);
  }
  ~Word() { cudaFree(at); }
  unsigned value() const { return *at; }  // as it is now
};

/// Whether a call, or the work, was refused with this text.
inline bool refused(cudaError_t code, const char* text) {
  return code != cudaSuccess && std::string(cudaGetErrorString(code)).find(text) != std::string::npos;
}

}  // namespace cuda_on_host::test
