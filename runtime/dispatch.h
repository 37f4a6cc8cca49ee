#pragma once
#include "runtime/config.h"
#include "runtime/device.h"
#include "runtime/dry_run.h"
#include "runtime/dtype.h"
#include "runtime/error.h"
#include "runtime/queue.h"
#include "runtime/trace.h"

namespace ssn {

/// Whether work can run there: this build has it, and the machine.
inline bool available(Device device) {
  if constexpr (build::has_cuda) {
    if (device == Device::cuda) return cuda_device_count() > 0;
  }
  return device == Device::cpu;
}

/// Calls f(queue) with the queue of the device named.
template <class F>
decltype(auto) on_queue(Device device, Where where, F&& f) {
  if (device == Device::cuda) {
    if constexpr (build::has_cuda)
      return f(cuda_queue());
    else
      fail(where, "this build has no CUDA: use --device cpu, or build where nvcc is found");
  }
  return f(cpu_queue());
}

/// Calls f<T>(queue) with the floating type and the queue named: the step from run-time values to a kernel's
/// overload. A span of the trace, named by the operation. In a DryRun, f is not called.
template <class F>
void dispatch(Device device, DType dtype, Where where, F&& f) {
  if (dry_run()) return;
  const Span span(where.op.data());  // made of a literal
  on_queue(device, where, [&](auto& queue) {
    if (dtype == DType::f64) return f.template operator()<double>(queue);
    check(dtype == DType::f32, where, "needs f32 or f64, found {}", name_of(dtype));
    return f.template operator()<float>(queue);
  });
}

/// dispatch for operations that compute on bf16 too.
template <class F>
void dispatch_mixed(Device device, DType dtype, Where where, F&& f) {
  if (dtype != DType::bf16) return dispatch(device, dtype, where, std::forward<F>(f));
  if (dry_run()) return;
  const Span span(where.op.data());
  on_queue(device, where, [&](auto& queue) { f.template operator()<bf16>(queue); });
}

}  // namespace ssn
