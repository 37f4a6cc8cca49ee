#pragma once
#include <cstddef>

namespace cuda_on_host {

/// What the race check hears of a launch, besides every memory access.
class RaceCheck {
 public:
  virtual void launch_starts() = 0;
  virtual void block_starts() = 0;
  virtual void block_barrier() = 0;
  /// __syncwarp of these lanes of the warp whose first thread is given.
  virtual void warp_barrier(int first_thread, unsigned lanes) = 0;
  virtual void atomic(const void* at, std::size_t bytes, void* code) = 0;

 protected:
  ~RaceCheck() = default;
};
/// Null unless kernels are instrumented (SSN_SANITIZE=race).
extern RaceCheck* race_check;

}  // namespace cuda_on_host
