#pragma once
#include <string>
#include <vector>

#include "tools/training/phases.h"

namespace ssn {

/// What connects two ranks: a message of b bytes takes latency + b / bandwidth.
struct Link {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes a second
};

/// How a sum goes over the ranks. `ring`: each rank sends 2 (n − 1) messages of bytes / n (Patarasuk and
/// Yuan, 2009). `tree`: 2 log2 n messages one after another, pipelined, so that the bytes pass twice
/// (Sanders, Speck, Traeff, 2009). `hierarchical`: a ring within each node for a part a rank, rings between
/// the nodes for these parts.
enum class SumAlgorithm : std::uint8_t { ring, tree, hierarchical };

struct Cluster {
  Link network;              // of a node; its ranks share it
  Link node = {2e-6, 20e9};  // between the ranks of a node
  std::int64_t ranks_per_node = 1;
  SumAlgorithm algorithm = SumAlgorithm::ring;
  std::int64_t piece = 0;  // bytes that are summed one after another; 0: a whole bucket
  double speed = 1;        // of its processors, as a multiple of those that were profiled
};

struct NamedLink {
  const char* name;
  Link link;
  const char* source;
};
/// Common interconnects.
const std::vector<NamedLink>& known_links();

/// Seconds of a sum of so many bytes over so many ranks.
double sum_seconds(const Cluster& cluster, std::int64_t ranks, double bytes);

struct SimulatedStep {
  double seconds = 0;
  double exposed = 0;  // of these, waiting for sums
};
/// One step: sums run one after another, each when it is started and the one before has ended, while the
/// step's own work goes on until it waits for all.
SimulatedStep simulate_step(const Cluster& cluster, std::int64_t ranks, const SumSchedule& schedule);

}  // namespace ssn
