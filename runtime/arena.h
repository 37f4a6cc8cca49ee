#pragma once
#include <memory>

#include "runtime/storage.h"

namespace ssn {

/// Memory of a device for work that is recorded and repeated (runtime/graph.h): what is given back is given
/// to none but the arena's users, and goes to the system with the arena and its last storage. It counts in
/// pool_stats() of the device.
class Arena {
 public:
  explicit Arena(Device device);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// While it lives, this thread's storages on the device come from the arena.
  class Use {
   public:
    explicit Use(const Arena& arena);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const Arena* outer_;
  };

 private:
  friend class Storage;
  class Pool;
  Device device_;
  std::shared_ptr<Pool> pool_;
};

}  // namespace ssn
