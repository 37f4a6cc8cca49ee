#pragma once
#include <functional>

#include "cuda_on_host/runtime.h"

// When the work on streams is done: at once, or late (schedules.h).
namespace cuda_on_host {

/// The device of this thread's calls.
int current_device();
/// Does the work now, records it if the stream is captured, or keeps it until something waits for it; its
/// error is then that of what waits.
cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> work);
/// Whether work on the stream is recorded instead. `refuse` makes that recording void.
bool is_captured(cudaStream_t stream);
cudaError_t refuse_capture(cudaStream_t stream, const char* why);
/// Does what is kept, of all streams, as a wait for the device does.
cudaError_t run_everything();

}  // namespace cuda_on_host
