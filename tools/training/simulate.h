#pragma once
#include <string>
#include <vector>

#include "runtime/names.h"
#include "tools/training/phases.h"

namespace ssn {

/// What connects two ranks: a message of b bytes takes latency + b / bandwidth.
struct Link {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes a second
};

/// How a sum goes over the ranks. `direct`, as runtime/wire.h does it: every rank sends each other its part
/// of bytes / n and then the part that it has summed, in pieces that follow each other without a pause; of
/// several ranks on a node, in levels. `ring`: each rank sends 2 (n − 1) messages of bytes / n one after
/// another (Patarasuk and Yuan, 2009). `tree`: 2 log2 n messages, pipelined, so that the bytes pass twice
/// (Sanders, Speck, Traeff, 2009). `hierarchical`: a ring within each node for a part a rank, rings between
/// the nodes for these parts.
enum class SumAlgorithm : std::uint8_t { direct, ring, tree, hierarchical };
template <>
struct Names<SumAlgorithm> {
  static constexpr std::string_view what = "algorithm", values[] = {"direct", "ring", "tree", "hierarchical"};
};

struct Cluster {
  Link network;              // of a node; its ranks share it
  Link node = {2e-6, 20e9};  // between the ranks of a node
  std::int64_t ranks_per_node = 1;
  SumAlgorithm algorithm = SumAlgorithm::direct;
  double speed = 1;         // of its processors, as a multiple of those that were profiled
  double interference = 0;  // work lasts 1 + this times as long while a sum is under way
};

struct NamedLink {
  const char* name;
  Link link;
  const char* source;
};
/// Common interconnects.
const std::vector<NamedLink>& known_links();

/// A sum keeps the links busy, and the next waits for them; its result comes later by `delay`.
struct SumTime {
  double busy = 0, delay = 0;  // seconds
};
SumTime sum_time(const Cluster& cluster, std::int64_t ranks, double bytes);

struct SimulatedStep {
  double seconds = 0;
  double exposed = 0;  // of these, waiting for sums
};
/// One step: sums run one after another, each when it is started and the one before has ended, while the
/// step's own work goes on until it waits for all.
SimulatedStep simulate_step(const Cluster& cluster, std::int64_t ranks, const SumSchedule& schedule);

}  // namespace ssn
