#pragma once
#include <cstdint>
#include <memory>

#include "runtime/dtype.h"

namespace ssn {

class Comm;

/// Sums over the ranks in the memory of each one's GPU, beside what cuda_queue() goes on with.
class DeviceSum {
 public:
  DeviceSum() = default;
  DeviceSum(const DeviceSum&) = delete;
  DeviceSum& operator=(const DeviceSum&) = delete;
  virtual ~DeviceSum() = default;

  /// Starts replacing `count` elements, f32 or f64, by their sum, after all that is queued by now. What
  /// travels has the type `wire`: the data's own, or bf16 for f32. Then each rank's values are rounded, and
  /// so is the result of each addition: for n ranks the error is at most n 2⁻⁸ Σ |xᵣ|, to first order.
  virtual void start(void* data, std::int64_t count, DType dtype, DType wire) = 0;
  /// Until all are summed. Waits here, and not on the device, for the watchdog to see who waits. Throws what
  /// went wrong on any rank, as far as the library tells.
  virtual void wait() = 0;
};

/// By NCCL, in an order of its own: the same bits on all ranks, but no tree. Collective, and every rank has a
/// GPU of its own. Defined where build::has_nccl; runtime/cuda/nccl_sum.cpp.
std::unique_ptr<DeviceSum> make_nccl_sum(Comm& comm);

}  // namespace ssn
