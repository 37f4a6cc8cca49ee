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
  /// Where cuda_queue() records (runtime/graph.h) the sum is a part of the recording.
  virtual void start(void* data, std::int64_t count, DType dtype, DType wire) = 0;
  /// Has what is queued from now on come after the sums that were started. What records sums ends with it.
  virtual void join() = 0;
  /// Until cuda_queue() has done what it has by now, with all sums that were started or repeated. Waits here,
  /// and not on the device, for the watchdog to see who waits. Throws what went wrong on any rank, as far as
  /// the library tells. Not while the queue records.
  virtual void wait() = 0;
};

/// By NCCL, in an order of its own: the same bits on all ranks, but no tree. Collective, and every rank has a
/// GPU of its own. Sums that one rank records all must record, and repeat together; the graphs that hold them
/// go before it does. Defined where build::has_nccl; runtime/cuda/nccl_sum.cpp.
std::unique_ptr<DeviceSum> make_nccl_sum(Comm& comm);

}  // namespace ssn
