#pragma once
#include <fmt/format.h>

#include <string>

#include "cuda_on_host/runtime.h"

namespace cuda_on_host {

/// Records an error with its text for cudaGetLastError and cudaGetErrorString of this thread, and returns it.
cudaError_t record_error(cudaError_t code, std::string text);
template <class... A>
cudaError_t error(cudaError_t code, fmt::format_string<A...> format, A&&... args) {
  return record_error(code, fmt::format(format, std::forward<A>(args)...));
}
cudaError_t check_stream(cudaStream_t stream);

}  // namespace cuda_on_host
