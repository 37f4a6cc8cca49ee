#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "runtime/device.h"

namespace ssn {

/// Reference-counted bytes of one device, aligned to 256, taken from that device's caching pool and given
/// back to it with the last reference. Contents are undefined (NaN patterns where build::exact_allocation).
/// A GPU's pool is ordered by cuda_queue()'s stream: what is given back while queued work still uses it
/// serves only what is queued later. Work on another stream keeps its storages until that queue was made to
/// wait for it. Thread-safe.
class Storage {
 public:
  Storage() = default;
  static Storage allocate(Device device, std::size_t bytes);
  /// Bytes that someone else owns; `release` runs with the last reference.
  static Storage adopt(Device device, void* data, std::size_t bytes, std::function<void()> release = {});

  explicit operator bool() const { return block_ != nullptr; }
  void* data() const { return block_ ? block_->data : nullptr; }
  std::size_t bytes() const { return block_ ? block_->bytes : 0; }
  Device device() const { return block_ ? block_->device : Device::cpu; }
  /// Whether this is the only reference, so that writing in place is seen by no one else.
  bool exclusive() const { return block_.use_count() == 1; }

 private:
  struct Block {
    Device device;
    void* data;
    std::size_t bytes;
    std::function<void()> release;
    Block(Device d, void* p, std::size_t n) : device(d), data(p), bytes(n) {}
    Block(const Block&) = delete;
    ~Block() {
      if (release) release();
    }
  };
  std::shared_ptr<Block> block_;
};

/// Bytes of memory that this machine has.
std::size_t physical_memory();

/// What a device's pool holds, and what was adopted, in bytes.
struct PoolStats {
  std::size_t held = 0;    // taken from the system and not given back
  std::size_t in_use = 0;  // of these, in live storages
  std::size_t peak = 0;    // the most that was ever in use
  std::size_t requests_to_system = 0;
};
PoolStats pool_stats(Device device);
/// For tests: from now on every storage starts as NaN patterns and is followed by a guard, which is looked at
/// when the storage is released. Returns the number of storages found written past their end so far.
std::size_t guard_storages();
/// Gives back to the system what is not in use.
void trim_pool(Device device);

}  // namespace ssn
