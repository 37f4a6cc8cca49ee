#include "ssn/initialise.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/random.h"

namespace ssn {
namespace {
constexpr std::int64_t kFilterFanIn = 9;  // of a 3x3 filter with one input channel

double kaiming(std::int64_t fan_in) {
  return std::sqrt(2.0 / static_cast<double>(fan_in));
}

/// A function of the index that is constant over ranges.
class Ranges {
 public:
  explicit Ranges(double everywhere) : from_{{0, everywhere}} {}
  void set(std::int64_t first, std::int64_t size, double value) {
    const double after = at(first + size);
    from_.erase(from_.lower_bound(first), from_.upper_bound(first + size));
    from_[first] = value;
    from_[first + size] = after;
  }
  double at(std::int64_t index) const { return std::prev(from_.upper_bound(index))->second; }

 private:
  std::map<std::int64_t, double> from_;  // value from this index on
};
}  // namespace

Parameters::Init initial_group(const Plan& plan, int group) {
  const PlannedGroup& g = plan.groups[group];
  std::vector<Shape> shapes;
  for (const int l : g.layers) shapes.push_back(plan.layers[l].shape);
  std::vector<std::vector<int>> classes = by_frequency(shapes);
  std::reverse(classes.begin(), classes.end());  // the most frequent shape has the last word
  Ranges deviation(kaiming(kFilterFanIn));
  for (const std::vector<int>& same_shape : classes)
    for (const int i : same_shape) {
      const PlannedLayer& layer = plan.layers[g.layers[i]];
      for (const std::int64_t first : layer.offsets)
        deviation.set(first, layer.size(), kaiming(layer.fan_in));
    }
  const Random draws(plan.options.seed, fmt::format("init/group{}", group));
  return [deviation, draws](std::int64_t index) {
    return deviation.at(index) * draws.normal(static_cast<std::uint64_t>(index));
  };
}

Parameters::Init initial_alpha(const Plan& plan, int layer) {
  const PlannedLayer& own = plan.layers[layer];
  const std::int64_t k = static_cast<std::int64_t>(own.offsets.size());
  std::int64_t rows = 0, row = 0;
  for (const int l : plan.groups[own.group].layers) {
    if (static_cast<std::int64_t>(plan.layers[l].offsets.size()) != k) continue;
    if (l == layer) row = rows;
    ++rows;
  }
  const Random draws(plan.options.seed, fmt::format("init/group{}/alpha{}", own.group, k));
  std::vector<double> matrix(static_cast<std::size_t>(rows * k));
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = draws.normal(i);
  matrix = orthonormal_rows(std::move(matrix), rows, k);
  const std::vector<double> alpha(matrix.begin() + row * k, matrix.begin() + (row + 1) * k);
  return [alpha](std::int64_t index) { return alpha[static_cast<std::size_t>(index)]; };
}

Parameters::Init initial_mask(const Plan& plan, int group) {
  const double value = 1.0 / static_cast<double>(plan.options.window * (plan.groups[group].tiles - 1));
  return [value](std::int64_t) { return value; };
}

std::vector<double> orthonormal_rows(std::vector<double> matrix, std::int64_t rows, std::int64_t cols) {
  // Gram and Schmidt over the shorter side's vectors, each cleaned twice, which is as exact as Householder's
  // reflections (Giraud et al., 2005).
  const bool by_row = rows < cols;
  const std::int64_t count = by_row ? rows : cols, length = by_row ? cols : rows;
  const auto at = [&](std::int64_t vector, std::int64_t i) -> double& {
    return matrix[static_cast<std::size_t>(by_row ? vector * cols + i : i * cols + vector)];
  };
  const auto dot = [&](std::int64_t a, std::int64_t b) {
    double s = 0;
    for (std::int64_t i = 0; i < length; ++i) s += at(a, i) * at(b, i);
    return s;
  };
  for (std::int64_t v = 0; v < count; ++v) {
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t u = 0; u < v; ++u) {
        const double along = dot(u, v);
        for (std::int64_t i = 0; i < length; ++i) at(v, i) -= along * at(u, i);
      }
    const double norm = std::sqrt(dot(v, v));
    check(norm > 0, "orthonormal_rows", "the {} x {} matrix has a rank below {}", rows, cols, count);
    for (std::int64_t i = 0; i < length; ++i) at(v, i) /= norm;
  }
  return matrix;
}

}  // namespace ssn
