#pragma once
#include <memory>

#include "runtime/storage.h"

namespace ssn {

/// While one lives, dispatch() of this thread computes nothing, and storages take address space only, from a
/// pool of their own that behaves like the device's: what a computation would need is found in no time and no
/// memory. What an operation takes within dispatch(), such as a small workspace, is
/// not counted. Contents are undefined; large tensors are neither filled nor copied. Storages may outlive it.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// What the computation so far would have had of its device's pool.
  PoolStats stats() const;

 private:
  friend class Storage;
  class Pool;
  std::shared_ptr<Pool> pool_;
  DryRun* outer_;
};

/// Whether this thread only pretends.
bool dry_run();

}  // namespace ssn
