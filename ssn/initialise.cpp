#include "ssn/initialise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/random.h"

namespace ssn {
namespace {
/// What the layer's weight would start with without sharing.
double own_deviation(const PlannedLayer& layer) {
  return layer.deviation > 0 ? layer.deviation : std::sqrt(2.0 / static_cast<double>(layer.fan_in));
}

/// Of all parameters of a group: the start deviation.
double deviation(const Plan& plan, int group) {
  double least = std::numeric_limits<double>::infinity();
  for (const int l : plan.groups[group].layers) least = std::min(least, own_deviation(plan.layers[l]));
  return least;
}

Parameters::Init projection(const Plan& plan, const std::string& stream) {
  constexpr double kBound = 0.6;
  const Random draws(plan.options.seed, stream);
  return [draws](std::int64_t index) {
    return kBound * (2 * draws.uniform(static_cast<std::uint64_t>(index)) - 1);
  };
}

/// The most copies of a group under the masks that a layer uses.
std::int64_t mask_tiles(const Plan& plan, const PlannedLayer& layer) {
  return plan.options.masks == MaskScope::layer ? layer.tiles : plan.groups[layer.group].tiles;
}

/// Of every element of the masks for so many copies.
double mask_magnitude(const PlanOptions& o, std::int64_t tiles) {
  return o.mask_init == MaskInit::small ? 1.0 / static_cast<double>(o.window * (tiles - 1)) : 1.0;
}

/// What a layer's templates are multiplied by at the start.
std::vector<double> start_coefficients(const Plan& plan, int number) {
  const PlannedLayer& layer = plan.layers[number];
  const PlanOptions& o = plan.options;
  std::vector<double> alpha(layer.offsets.size(), 1 / static_cast<double>(layer.offsets.size()));
  if (layer.method != Method::templates || o.combine == Combine::avg) return alpha;
  const auto count = static_cast<std::int64_t>(alpha.size());
  const Parameters::Init own = initial_coefficients(plan, number);
  if (o.combine == Combine::wavg) {
    for (std::int64_t k = 0; k < count; ++k) alpha[k] = own(k);
  } else {
    const Parameters::Init w = initial_projection(plan, layer.group, count),
                           b = initial_projection_bias(plan, layer.group, count);
    for (std::int64_t k = 0; k < count; ++k) {
      alpha[k] = b(k);
      for (std::int64_t e = 0; e < o.embedding; ++e) alpha[k] += w(k * o.embedding + e) * own(e);
    }
  }
  if (!o.softmax) return alpha;
  double sum = 0;
  for (double& a : alpha) sum += a = std::exp(a);
  for (double& a : alpha) a /= sum;
  return alpha;
}

/// What resizing `from` values to `to` leaves of their variance, on average: the squares of the two corners'
/// weights (half-pixel centres).
double variance_left(std::int64_t from, std::int64_t to) {
  double sum = 0;
  for (std::int64_t i = 0; i < to; ++i) {
    const double at =
        (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    const double f = at <= 0 || at >= static_cast<double>(from - 1) ? 0 : at - std::floor(at);
    sum += f * f + (1 - f) * (1 - f);
  }
  return sum / static_cast<double>(to);
}

/// The mean square of a layer's weight at the start, without a gain.
double mean_square(const Plan& plan, int number) {
  const PlannedLayer& layer = plan.layers[number];
  const double drawn = std::pow(deviation(plan, layer.group), 2);
  if (layer.tiles > 1) {
    const double mask =
        plan.options.upsample == Upsample::mask ? mask_magnitude(plan.options, mask_tiles(plan, layer)) : 1;
    const auto n = static_cast<double>(layer.size()),
               plain = static_cast<double>(plan.groups[layer.group].parameters);
    return drawn * (plain + mask * mask * (n - plain)) / n;
  }
  double squares = 0;
  for (const double alpha : start_coefficients(plan, number)) squares += alpha * alpha;
  if (!layer.resized()) return drawn * squares;
  const Grid to = resized_to(plan, layer);
  return drawn * squares * variance_left(layer.rows, to.rows) * variance_left(layer.cols, to.cols);
}
}  // namespace

Parameters::Init initial_group(const Plan& plan, int group) {
  const Random draws(plan.options.seed, fmt::format("init/group{}", group));
  return [scale = deviation(plan, group), draws](std::int64_t index) {
    return scale * draws.normal(static_cast<std::uint64_t>(index));
  };
}

Parameters::Init initial_coefficients(const Plan& plan, int layer) {
  const PlannedLayer& own = plan.layers[layer];
  const std::size_t k = own.offsets.size();
  std::int64_t rows = 0, row = 0;
  for (const int l : plan.groups[own.group].layers) {
    if (plan.layers[l].offsets.size() != k) continue;
    if (l == layer) row = rows;
    ++rows;
  }
  const bool embedding = plan.options.combine == Combine::emb;
  const std::int64_t cols = embedding ? plan.options.embedding : static_cast<std::int64_t>(k);
  const Random draws(plan.options.seed,
                     fmt::format("init/group{}/{}{}", own.group, embedding ? "phi" : "alpha", k));
  std::vector<double> matrix(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = draws.normal(i);
  matrix = orthonormal_rows(std::move(matrix), rows, cols);
  const std::vector<double> mine(matrix.begin() + row * cols, matrix.begin() + (row + 1) * cols);
  return [mine](std::int64_t index) { return mine[static_cast<std::size_t>(index)]; };
}

Parameters::Init initial_projection(const Plan& plan, int group, std::int64_t templates) {
  return projection(plan, fmt::format("init/group{}/projection{}", group, templates));
}

Parameters::Init initial_projection_bias(const Plan& plan, int group, std::int64_t templates) {
  return projection(plan, fmt::format("init/group{}/projection{}/bias", group, templates));
}

Parameters::Init initial_mask(const Plan& plan, const std::string& name, std::int64_t tiles) {
  const double value = mask_magnitude(plan.options, tiles);
  if (plan.options.mask_init != MaskInit::random) return [value](std::int64_t) { return value; };
  const Random draws(plan.options.seed, "init/" + name);
  return [value, draws](std::int64_t index) {
    return draws.bits(static_cast<std::uint64_t>(index)) & 1 ? value : -value;
  };
}

double layer_gain(const Plan& plan, int layer) {
  const PlannedLayer& l = plan.layers[layer];
  const Gain gain = plan.options.gain;
  const bool unshared = l.method == Method::exact && !l.resized() && plan.groups[l.group].layers.size() == 1;
  if (unshared || gain == Gain::off || (gain == Gain::automatic && l.norm_follows)) return 1;
  const double whole = own_deviation(l) / std::sqrt(mean_square(plan, layer));
  return gain == Gain::on ? whole : std::min(whole, 1.0);
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
