#include "ssn/kmeans.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "runtime/error.h"
#include "runtime/random.h"

namespace ssn {
namespace {

std::vector<double> random_points(int count, std::int64_t dim, std::uint64_t seed) {
  const Random random(seed, "points");
  std::vector<double> x(static_cast<std::size_t>(count * dim));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
  return x;
}

/// The least inertia of all ways to make `clusters` clusters of the points that labels [0, at) leave open.
double least_inertia(const Points& points, int clusters, std::vector<int>& labels, std::size_t at) {
  if (at < labels.size()) {
    double least = INFINITY;
    for (labels[at] = 0; labels[at] < clusters; ++labels[at])
      least = std::min(least, least_inertia(points, clusters, labels, at + 1));
    return least;
  }
  double inertia = 0;
  for (int c = 0; c < clusters; ++c) {
    std::vector<double> mean(static_cast<std::size_t>(points.dim));
    double size = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != c) continue;
      ++size;
      for (std::int64_t d = 0; d < points.dim; ++d) mean[d] += points.row(static_cast<std::int64_t>(i))[d];
    }
    if (size == 0) return INFINITY;
    for (double& m : mean) m /= size;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] == c) inertia += squared_distance(points.row(static_cast<std::int64_t>(i)), mean);
  }
  return inertia;
}

void expect_numbered_by_appearance(const std::vector<int>& labels, int clusters) {
  int next = 0;
  for (const int label : labels) {
    ASSERT_LE(label, next);
    next += label == next;
  }
  EXPECT_EQ(next, clusters) << "clusters that are not empty";
}

TEST(KMeans, FindsTheBestOfAllPartitions) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    std::vector<double> x = random_points(8, 2, seed);
    for (std::size_t i = 0; i < x.size(); i += 2) x[i] += 5 * static_cast<double>(i % 6);  // three places
    std::vector<int> labels(8);
    const Clusters found = kmeans({x, 2}, 3, seed);
    EXPECT_NEAR(found.inertia, least_inertia({x, 2}, 3, labels, 0), 1e-12) << seed;
    expect_numbered_by_appearance(found.labels, 3);
  }
}

TEST(KMeans, CentersAreTheMeansOfTheirPoints) {
  const std::vector<double> x = random_points(23, 5, 1);
  const Clusters found = kmeans({x, 5}, 4, 2);
  const Points points{x, 5}, centers{found.centers, 5};
  ASSERT_EQ(centers.count(), 4);
  double inertia = 0;
  for (int i = 0; i < points.count(); ++i) {
    const double own = squared_distance(points.row(i), centers.row(found.labels[i]));
    inertia += own;
    for (int c = 0; c < 4; ++c) EXPECT_LE(own, squared_distance(points.row(i), centers.row(c))) << i;
  }
  EXPECT_NEAR(found.inertia, inertia, 1e-12);
  for (std::int64_t d = 0; d < 5; ++d) {
    double sum = 0, size = 0;
    for (int i = 0; i < points.count(); ++i)
      if (found.labels[i] == 1) sum += points.row(i)[d], ++size;
    EXPECT_NEAR(centers.row(1)[d], sum / size, 1e-12);
  }
}

TEST(KMeans, IsAFunctionOfTheSeed) {
  const std::vector<double> x = random_points(40, 3, 7);
  const Clusters a = kmeans({x, 3}, 6, 1), b = kmeans({x, 3}, 6, 1);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.centers, b.centers);
  EXPECT_EQ(a.inertia, b.inertia);
  std::set<std::vector<int>> found;
  for (std::uint64_t seed = 0; seed < 20; ++seed) found.insert(kmeans({x, 3}, 12, seed).labels);
  EXPECT_GT(found.size(), 1u) << "no seed changes anything";
}

TEST(KMeans, NoClusterIsEmpty) {
  const std::vector<double> alike(7 * 3, 0.25);
  for (int clusters = 1; clusters <= 7; ++clusters) {
    const Clusters found = kmeans({alike, 3}, clusters, 0);
    expect_numbered_by_appearance(found.labels, clusters);
    EXPECT_EQ(found.inertia, 0);
    EXPECT_EQ(found.labels, kmeans({alike, 3}, clusters, 9).labels);
  }
  // Two places for five points: three clusters must share what two need.
  const std::vector<double> twins = {0, 1, 0, 1, 1};
  expect_numbered_by_appearance(kmeans({twins, 1}, 3, 4).labels, 3);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<double> x = random_points(9, 2, seed);
    for (const int clusters : {1, 8, 9})
      expect_numbered_by_appearance(kmeans({x, 2}, clusters, seed).labels, clusters);
  }
}

TEST(KMeans, ACenterThatGetsNoPointTakesTheFarthest) {
  const std::vector<double> x = {0, 1, 2, 9};
  // All are nearest to the first centre; the second takes 9, then the mean of the others is 1.
  const Clusters found = lloyd({x, 1}, {1, 100});
  EXPECT_EQ(found.labels, (std::vector<int>{0, 0, 0, 1}));
  EXPECT_EQ(found.centers, (std::vector<double>{1, 9}));
  EXPECT_EQ(found.inertia, 2);
}

TEST(KMeans, TiesGoToTheLowerIndex) {
  const std::vector<double> x = {-1, 0, 1};
  EXPECT_EQ(lloyd({x, 1}, {-1, 1}).labels, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(lloyd({x, 1}, {1, -1}).labels, (std::vector<int>{1, 0, 0}));
}

TEST(KMeans, PlacesPreferNeighbours) {
  const std::vector<double> values = {0, 1, 0.1, 1.1, 0, 1, 0.1, 1.1};
  const auto labels = [&](double near) {
    const std::vector<double> placed = with_places({values, 1}, near);
    EXPECT_EQ(placed.size(), 2 * values.size());
    return kmeans({placed, 2}, 2, 1).labels;
  };
  EXPECT_EQ(labels(0), (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(labels(0.1), labels(0)) << "what is plainly alike stays together";
  EXPECT_EQ(labels(10), (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(KMeans, APlaceIsAShareOfHowFarPointsLieApart) {
  const std::vector<double> values = {-3, 0, 0, 3, 0, 0}, placed = with_places({values, 2}, 2);
  ASSERT_EQ(placed.size(), 9u);
  // Mean (−1, 1); squared distances 5, 5 and 2: a root mean square of 2, from the first to the last twice
  // that.
  EXPECT_DOUBLE_EQ(placed[2], 0);
  EXPECT_DOUBLE_EQ(placed[5], 2);
  EXPECT_DOUBLE_EQ(placed[8], 4);
}

TEST(KMeans, RefusesWhatCannotBe) {
  const std::vector<double> x = {1, 2, 3, NAN};
  EXPECT_THROW(kmeans({x, 2}, 1, 0), Error);
  const Points three{std::span(x).first(3), 1};
  EXPECT_THROW(kmeans(three, 4, 0), Error);
  EXPECT_THROW(kmeans(three, 0, 0), Error);
}

}  // namespace
}  // namespace ssn
