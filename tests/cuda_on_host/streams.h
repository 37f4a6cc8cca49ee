#pragma once
#include <functional>

#include "cuda_on_host/runtime.h"

// When the work on streams is done: at once, or late (schedules.h).
namespace cuda_on_host {

/// The device of this thread's calls.
int current_device();
/// Does the work now, or keeps it until something waits for it; its error is then that of what waits.
cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> work);
/// Does what is kept, of all streams, as a wait for the device does.
cudaError_t run_everything();

}  // namespace cuda_on_host
