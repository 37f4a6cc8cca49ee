#include "tools/training/simulate.h"

#include <algorithm>
#include <cmath>

namespace ssn {
namespace {

double ring(const Link& link, double n, double bytes) {
  return n < 2 ? 0 : 2 * (n - 1) * (link.latency + bytes / n / link.bandwidth);
}
double tree(const Link& link, double n, double bytes) {
  return n < 2 ? 0 : 2 * (std::ceil(std::log2(n)) * link.latency + bytes / link.bandwidth);
}

double piece_seconds(const Cluster& c, double ranks, double bytes) {
  const double local = std::min(ranks, static_cast<double>(c.ranks_per_node)),
               nodes = std::ceil(ranks / local);
  if (nodes == 1)
    return c.algorithm == SumAlgorithm::tree ? tree(c.node, ranks, bytes) : ring(c.node, ranks, bytes);
  if (c.algorithm == SumAlgorithm::tree) return tree(c.network, nodes, bytes) + tree(c.node, local, bytes);
  if (c.algorithm == SumAlgorithm::hierarchical)
    return ring(c.node, local, bytes) + ring(c.network, nodes, bytes);
  if (local == 1) return ring(c.network, nodes, bytes);
  // One ring through all ranks: of a node's links to the network, one carries it, at the pace of the slower
  // kind.
  const Link slowest{std::max(c.network.latency, c.node.latency),
                     std::min(c.network.bandwidth, c.node.bandwidth)};
  return ring(slowest, ranks, bytes);
}

}  // namespace

const std::vector<NamedLink>& known_links() {
  static const std::vector<NamedLink> links = {
      {"100mbit", {100e-6, 0.957 * 12.5e6}, "Fast Ethernet: TCP over 1500-byte frames carries 95.7%"},
      {"1gbit", {50e-6, 0.957 * 125e6}, "Gigabit Ethernet: TCP over 1500-byte frames carries 95.7%"},
      {"10gbit", {20e-6, 0.957 * 1.25e9}, "10 Gigabit Ethernet, TCP"},
      {"25gbit", {15e-6, 0.957 * 3.125e9}, "25 Gigabit Ethernet, TCP"},
      {"edr", {1.5e-6, 12.1e9}, "InfiniBand EDR: 100 Gbit/s a port, 97% of it for data"},
      {"hdr", {1.3e-6, 24.2e9}, "InfiniBand HDR: 200 Gbit/s a port"},
      {"ndr", {1.2e-6, 48.5e9}, "InfiniBand NDR: 400 Gbit/s a port"},
      {"nvlink-v100", {5e-6, 130e9}, "NVLink 2: 150 GB/s in each direction a GPU, taken to carry 130"},
      {"nvlink-h100", {5e-6, 360e9}, "NVLink 4: 450 GB/s in each direction a GPU, taken to carry 360"},
  };
  return links;
}

double sum_seconds(const Cluster& cluster, std::int64_t ranks, double bytes) {
  const auto n = static_cast<double>(ranks);
  if (cluster.piece == 0) return piece_seconds(cluster, n, bytes);
  const auto piece = static_cast<double>(cluster.piece);
  const double whole = std::floor(bytes / piece), rest = bytes - whole * piece;
  return whole * piece_seconds(cluster, n, piece) + (rest > 0 ? piece_seconds(cluster, n, rest) : 0);
}

SimulatedStep simulate_step(const Cluster& cluster, std::int64_t ranks, const SumSchedule& schedule) {
  double network_free = 0;
  for (const SumStart& sum : schedule.sums)
    network_free = std::max(network_free, sum.after / cluster.speed) +
                   sum_seconds(cluster, ranks, static_cast<double>(sum.bytes));
  const double work = schedule.backward_end / cluster.speed;
  const double exposed = ranks > 1 ? std::max(0.0, network_free - work) : 0;
  return {work + exposed + schedule.tail / cluster.speed, exposed};
}

}  // namespace ssn
