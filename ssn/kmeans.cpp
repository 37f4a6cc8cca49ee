#include "ssn/kmeans.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/error.h"
#include "runtime/random.h"

namespace ssn {
namespace {

/// Each point's nearest centre and squared distance from it.
struct Assignment {
  std::vector<int> labels;
  std::vector<double> distances;
};

Assignment assign(const Points& points, const Points& centers) {
  Assignment a{std::vector<int>(static_cast<std::size_t>(points.count())),
               std::vector<double>(static_cast<std::size_t>(points.count()))};
  for (int i = 0; i < points.count(); ++i) {
    double least = std::numeric_limits<double>::infinity();
    for (int c = 0; c < centers.count(); ++c) {
      const double distance = squared_distance(points.row(i), centers.row(c));
      if (distance < least) {
        least = distance;
        a.labels[i] = c;
      }
    }
    a.distances[i] = least;
  }
  return a;
}

void fill_empty_clusters(Assignment& a, int clusters) {
  std::vector<int> size(static_cast<std::size_t>(clusters));
  for (const int label : a.labels) ++size[label];
  for (int c = 0; c < clusters; ++c) {
    if (size[c] > 0) continue;
    std::size_t farthest = a.labels.size();
    for (std::size_t i = 0; i < a.labels.size(); ++i) {
      if (size[a.labels[i]] < 2) continue;
      if (farthest == a.labels.size() || a.distances[i] > a.distances[farthest]) farthest = i;
    }
    --size[a.labels[farthest]];
    ++size[c];
    a.labels[farthest] = c;
    a.distances[farthest] = 0;
  }
}

std::vector<double> means(const Points& points, std::span<const int> labels, int clusters) {
  std::vector<double> centers(static_cast<std::size_t>(clusters * points.dim));
  std::vector<double> size(static_cast<std::size_t>(clusters));
  for (int i = 0; i < points.count(); ++i) {
    ++size[labels[i]];
    for (std::int64_t d = 0; d < points.dim; ++d) centers[labels[i] * points.dim + d] += points.row(i)[d];
  }
  for (std::size_t i = 0; i < centers.size(); ++i) centers[i] /= size[i / points.dim];
  return centers;
}

/// Each next centre is a point, drawn with a chance in proportion to its squared distance from the centres so
/// far; once every point is a centre's twin, the first points are.
std::vector<double> plus_plus(const Points& points, int clusters, const Random& random, std::uint64_t index) {
  std::vector<double> centers,
      distances(static_cast<std::size_t>(points.count()), std::numeric_limits<double>::infinity());
  std::int64_t next = random.below(points.count(), index++);
  for (int c = 0; c < clusters; ++c) {
    const auto center = points.row(next);
    centers.insert(centers.end(), center.begin(), center.end());
    double total = 0;
    for (int i = 0; i < points.count(); ++i) {
      distances[i] = std::min(distances[i], squared_distance(points.row(i), center));
      total += distances[i];
    }
    double left = total * random.uniform(index++);
    next = 0;
    for (int i = 0; i < points.count();
         ++i) {  // rounding may leave something: then the last that has a chance
      if (distances[i] == 0) continue;
      next = i;
      left -= distances[i];
      if (left < 0) break;
    }
  }
  return centers;
}

Clusters numbered_by_appearance(const Clusters& found, std::int64_t dim) {
  Clusters out{.labels = {}, .centers = {}, .inertia = found.inertia};
  std::vector<int> number(found.centers.size() / static_cast<std::size_t>(dim), -1);
  int next = 0;
  for (const int label : found.labels) {
    if (number[label] < 0) {
      number[label] = next++;
      const auto center = found.centers.begin() + label * dim;
      out.centers.insert(out.centers.end(), center, center + dim);
    }
    out.labels.push_back(number[label]);
  }
  return out;
}

void check_possible(const Points& points, int clusters) {
  check(clusters >= 1 && clusters <= points.count(), "k-means",
        "{} clusters of {} points: each cluster needs a point, and there must be one", clusters,
        points.count());
}

}  // namespace

double squared_distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

std::vector<double> with_places(const Points& points, double near) {
  const auto count = static_cast<double>(points.count());
  std::vector<double> mean(static_cast<std::size_t>(points.dim));
  for (int i = 0; i < points.count(); ++i)
    for (std::size_t d = 0; d < mean.size(); ++d) mean[d] += points.row(i)[d] / count;
  double squares = 0;
  for (int i = 0; i < points.count(); ++i) squares += squared_distance(points.row(i), mean);
  const double step = near * std::sqrt(squares / count) / std::max(1.0, count - 1);
  std::vector<double> all;
  for (int i = 0; i < points.count(); ++i) {
    all.insert(all.end(), points.row(i).begin(), points.row(i).end());
    all.push_back(step * i);
  }
  return all;
}

Clusters lloyd(const Points& points, std::vector<double> centers) {
  constexpr int kIterations = 300;
  const int clusters = Points{centers, points.dim}.count();
  check_possible(points, clusters);
  std::vector<int> labels;
  for (int i = 0; i < kIterations; ++i) {
    Assignment next = assign(points, {centers, points.dim});
    fill_empty_clusters(next, clusters);
    if (next.labels == labels) break;
    labels = std::move(next.labels);
    centers = means(points, labels, clusters);
  }
  Clusters result{std::move(labels), std::move(centers)};
  for (int i = 0; i < points.count(); ++i)
    result.inertia +=
        squared_distance(points.row(i), Points{result.centers, points.dim}.row(result.labels[i]));
  return result;
}

Clusters kmeans(const Points& points, int clusters, std::uint64_t seed) {
  constexpr int kRestarts = 10;
  check_possible(points, clusters);
  check(std::all_of(points.values.begin(), points.values.end(), [](double v) { return std::isfinite(v); }),
        "k-means", "a point has a coordinate that is not finite");
  const Random random(seed, "k-means");
  Clusters best;
  for (int restart = 0; restart < kRestarts; ++restart) {
    const auto draw = static_cast<std::uint64_t>(restart) << 32;
    Clusters found = lloyd(points, plus_plus(points, clusters, random, draw));
    if (restart == 0 || found.inertia < best.inertia) best = std::move(found);
  }
  return numbered_by_appearance(best, points.dim);
}

}  // namespace ssn
