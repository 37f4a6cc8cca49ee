#pragma once
#include <vector>

#include "autograd/parameters.h"
#include "runtime/comm.h"

namespace ssn {

/// The sum of tensors that come one after another at the same place, added as a binary tree,
/// ((0 + 1) + (2 + 3)) + ..., with the carries of a binary counter: log2(count) tensors are kept.
class TreeSum {
 public:
  /// `count` is a power of two.
  TreeSum(const Tensor& like, std::int64_t count);
  /// Takes in number `index`, from 0 up to count − 2, which may then be overwritten.
  void keep(std::int64_t index, const Tensor& values);
  /// Elements of the last: adds what was kept.
  void add_kept(FlatRange range, const Tensor& values) const;

 private:
  std::vector<Tensor> levels_;  // the sums of 1, 2, 4, ... tensors
};

/// The shards of --shards that a rank computes one after another in a step. The gradients of all shards are
/// added in one binary tree: over the rank's shards here, over the ranks by SumOrder::tree. Running
/// statistics become the mean over the shards, added in the same tree, of what each shard makes of those
/// before the step: batch norm's update with the mean of the shards' statistics.
///
/// A step: for each shard begin(), forward, backward, end(); during the last one's backward complete() before
/// a sum over the ranks starts; finish().
class Shards {
 public:
  /// `count` shards on this rank, count · comm.size() in all; both powers of two. Collective.
  Shards(Comm& comm, Parameters& parameters, std::int64_t count);

  void begin();
  void end();
  /// These elements of the last shard's gradient are complete: they become the sum over the rank's shards.
  void complete(FlatRange range);
  void finish();

 private:
  Comm& comm_;
  Parameters& parameters_;
  std::int64_t count_, shard_ = 0;
  Tensor statistics_, before_;  // the running statistics one after another: a shard's, before the step
  TreeSum gradients_, sums_;
  RangeSet complete_;  // of the last shard's gradient
};

}  // namespace ssn
