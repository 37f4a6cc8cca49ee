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

/// Two exchanges of parts, each with one message's latency, which the next sum does not wait for.
SumTime direct(const Link& link, double n, double bytes) {
  if (n < 2) return {};
  return {2 * (n - 1) / n * bytes / link.bandwidth, 2 * link.latency};
}

double serial_seconds(const Cluster& c, double ranks, double local, double nodes, double bytes) {
  if (c.algorithm == SumAlgorithm::tree) return tree(c.network, nodes, bytes) + tree(c.node, local, bytes);
  if (nodes == 1 || c.algorithm == SumAlgorithm::hierarchical)
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

SumTime sum_time(const Cluster& cluster, std::int64_t ranks, double bytes) {
  const auto n = static_cast<double>(ranks);
  const double local = std::min(n, static_cast<double>(cluster.ranks_per_node)), nodes = std::ceil(n / local);
  if (cluster.algorithm != SumAlgorithm::direct) return {serial_seconds(cluster, n, local, nodes, bytes), 0};
  const SumTime within = direct(cluster.node, local, bytes), between = direct(cluster.network, nodes, bytes);
  return {within.busy + between.busy, within.delay + between.delay};
}

SimulatedStep simulate_step(const Cluster& cluster, std::int64_t ranks, const SumSchedule& schedule) {
  double now = 0, done = 0, busy_until = 0, arrived = 0;
  const auto work_until = [&](double work) {
    const double todo = (work - done) / cluster.speed;
    const double slow = std::min(todo, std::max(0.0, busy_until - now) / (1 + cluster.interference));
    now += todo + slow * cluster.interference;
    done = work;
  };
  for (const SumStart& sum : schedule.sums) {
    work_until(sum.after);
    const SumTime time = sum_time(cluster, ranks, static_cast<double>(sum.bytes));
    busy_until = std::max(now, busy_until) + time.busy;
    arrived = std::max(arrived, busy_until + time.delay);
  }
  work_until(schedule.backward_end);
  const double exposed = ranks > 1 ? std::max(0.0, arrived - now) : 0;
  return {now + exposed + schedule.tail / cluster.speed, exposed};
}

}  // namespace ssn
