#include <fmt/format.h>

#include <map>
#include <numeric>

#include "cuda_on_host/runtime.h"
#include "tests/cuda_on_host/block.h"
#include "tests/cuda_on_host/capability.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/race_check.h"
#include "tests/cuda_on_host/runtime_error.h"
#include "tests/cuda_on_host/shared_memory.h"
#include "tests/cuda_on_host/streams.h"

namespace cuda_on_host {
namespace {

constexpr std::size_t kSharedUnasked = 48 << 10;  // bytes

std::map<const void*, std::size_t>& shared_limits() {
  static std::map<const void*, std::size_t> limits;
  return limits;
}

/// What keeps CUDA from starting this; empty if nothing.
std::string problem_with(const LaunchShape& s) {
  const dim3 g = s.grid, b = s.block;
  if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z) return "an extent of the grid or of the block is 0";
  if (static_cast<std::uint64_t>(b.x) * b.y * b.z > kMaxThreads || b.z > 64) {
    return fmt::format("a block of {}x{}x{} threads; 1024 are possible, and 64 in z", b.x, b.y, b.z);
  }
  if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) {
    return fmt::format("a grid of {}x{}x{} blocks; 2^31-1, 65535 and 65535 are possible", g.x, g.y, g.z);
  }
  const auto asked = shared_limits().find(s.kernel);
  const std::size_t limit = asked == shared_limits().end() ? kSharedUnasked : asked->second;
  if (s.shared > limit) {
    return fmt::format("{} bytes of dynamic shared memory; the limit is {} (cudaFuncSetAttribute raises it)",
                       s.shared, limit);
  }
  return {};
}

/// The order in which the blocks of a grid run: a permutation of [0, blocks).
class BlockOrder {
 public:
  explicit BlockOrder(std::uint64_t blocks) : blocks_(blocks) {
    if (schedule().order != Schedule::random) return;
    auto& random = schedule_random();
    start_ = random.below(blocks);
    step_ = random.below(blocks);
    while (std::gcd(step_, blocks) != 1) step_ = (step_ + 1) % blocks;
  }
  std::uint64_t operator()(std::uint64_t i) const {
    if (schedule().order == Schedule::reverse) return blocks_ - 1 - i;
    return (start_ + i * step_) % blocks_;  // blocks < 2^31 in x; grids of tests are far below 2^32 blocks
  }

 private:
  std::uint64_t blocks_, start_ = 0, step_ = 1;
};

void number_threads(Block& b, dim3 extents) {
  b.size = 0;
  for (unsigned z = 0; z < extents.z; ++z) {
    for (unsigned y = 0; y < extents.y; ++y) {
      for (unsigned x = 0; x < extents.x; ++x) b.threads[b.size++].index = {x, y, z};
    }
  }
}

}  // namespace

cudaError_t launch(const LaunchShape& s, std::function<cudaError_t()> work) {
  if (const cudaError_t e = check_stream(s.stream); e != cudaSuccess) return e;
  {
    std::lock_guard lock(device_mutex());
    if (const std::string problem = problem_with(s); !problem.empty())
      return error(cudaErrorInvalidConfiguration, "{}", problem);
  }
  return enqueue(s.stream, std::move(work));
}

cudaError_t run_grid(const LaunchShape& s, const std::function<void()>& thread) {
  std::lock_guard lock(device_mutex());
  Block& b = block();
  number_threads(b, s.block);
  b.body = &thread;
  gridDim = s.grid;
  blockDim = s.block;
  DynamicShared dynamic(s.shared);
  schedule_random().restart();
  if (race_check) race_check->launch_starts();
  const std::uint64_t blocks = static_cast<std::uint64_t>(s.grid.x) * s.grid.y * s.grid.z;
  const BlockOrder order(blocks);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t k = order(i);
    blockIdx = {static_cast<unsigned>(k % s.grid.x), static_cast<unsigned>(k / s.grid.x % s.grid.y),
                static_cast<unsigned>(k / s.grid.x / s.grid.y)};
    if (const std::string failure = run_block(); !failure.empty())
      return error(cudaErrorLaunchFailure, "{}", failure);
  }
  return cudaSuccess;
}

cudaError_t set_shared_limit(const void* kernel, int bytes) {
  std::lock_guard lock(device_mutex());
  if (bytes < 0 || static_cast<std::size_t>(bytes) > most_shared()) {
    return error(cudaErrorInvalidValue, "{} bytes of dynamic shared memory; at most {} are possible", bytes,
                 most_shared());
  }
  shared_limits()[kernel] = static_cast<std::size_t>(bytes);
  return cudaSuccess;
}

}  // namespace cuda_on_host
