#pragma once
#include <cstdint>
#include <span>
#include <vector>

// k-means (Lloyd, 1982) over a few points, one thread, in double precision: which layers are alike (paper
// section 3.3).
namespace ssn {

/// (count, dim), row-major.
struct Points {
  std::span<const double> values;
  std::int64_t dim = 0;

  int count() const { return dim == 0 ? 0 : static_cast<int>(std::ssize(values) / dim); }
  std::span<const double> row(std::int64_t i) const {
    return values.subspan(static_cast<std::size_t>(i * dim), static_cast<std::size_t>(dim));
  }
};

/// The points, (count, dim + 1), with their place in the row as one more coordinate: from the first to the
/// last it grows by `near` times the points' root mean square distance from their mean. So clusters prefer
/// neighbours to others that are as close.
std::vector<double> with_places(const Points& points, double near);

struct Clusters {
  std::vector<int> labels;      // of the points; no cluster is empty
  std::vector<double> centers;  // (P, dim): the means of their points
  double inertia = 0;           // Σ of the points' squared distances from their centres
};

/// Σ (a_i − b_i)²
double squared_distance(std::span<const double> a, std::span<const double> b);

/// From given centres (P, dim), P at most the number of points: each point goes to the nearest (ties: the
/// lower index), each centre to the mean of its points, until the labels repeat, 300 times at most. A cluster
/// that gets no point takes the one that is farthest from its centre (ties: the lower index) from a cluster
/// of several.
Clusters lloyd(const Points& points, std::vector<double> centers);

/// The best of ten runs (ties: the earlier one) from k-means++ centres (Arthur and Vassilvitskii, 2007) drawn
/// by the seed; clusters are numbered by first appearance. Also of points that are all alike, P clusters come
/// out. `clusters` must be from 1 to the number of points, and the points finite.
Clusters kmeans(const Points& points, int clusters, std::uint64_t seed);

}  // namespace ssn
