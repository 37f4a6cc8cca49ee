#include "ssn/allocation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "runtime/progress.h"
#include "ssn/wide.h"

namespace ssn {
namespace {

std::int64_t sum(std::span<const std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

/// `budget` in proportion to the weights: floors, then one each to the largest remainders. Zeros become 1 at
/// the expense of the largest share; budget >= weights.size().
std::vector<std::int64_t> proportional(std::int64_t budget, std::span<const std::int64_t> weights) {
  const std::int64_t all = sum(weights);
  std::vector<std::int64_t> share(weights.size()), remainder(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Wide exact = static_cast<Wide>(budget) * weights[i];
    share[i] = static_cast<std::int64_t>(exact / all);
    remainder[i] = static_cast<std::int64_t>(exact % all);
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  const std::int64_t left = budget - sum(share);
  for (std::int64_t i = 0; i < left; ++i) ++share[order[static_cast<std::size_t>(i)]];
  for (std::int64_t& s : share) {
    if (s > 0) continue;
    --*std::max_element(share.begin(), share.end());
    s = 1;
  }
  return share;
}
}  // namespace

std::vector<std::int64_t> split_budget(std::span<const std::int64_t> sizes, std::span<const int> groups,
                                       int count, std::int64_t budget) {
  check_usage(budget >= count, "budget",
              "{} parameters are too few for {} groups: each needs at least one; raise the budget or take "
              "fewer groups",
              grouped(budget), grouped(count));
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(count)), layers(wanted.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    wanted[groups[i]] += sizes[i];
    ++layers[groups[i]];
  }
  std::int64_t singles = 0;
  std::vector<std::int64_t> others;  // what the groups of several layers want
  for (std::size_t g = 0; g < wanted.size(); ++g) {
    if (layers[g] == 1)
      singles += wanted[g];
    else
      others.push_back(wanted[g]);
  }
  const std::int64_t rest = budget - singles;
  if (rest < static_cast<std::int64_t>(others.size())) return proportional(budget, wanted);
  if (others.empty()) return wanted;
  const std::vector<std::int64_t> shares = proportional(rest, others);
  for (std::size_t g = 0, next = 0; g < wanted.size(); ++g)
    if (layers[g] != 1) wanted[g] = shares[next++];
  return wanted;
}

std::vector<std::int64_t> largest_layers(std::span<const std::int64_t> sizes, std::span<const int> groups,
                                         int count) {
  std::vector<std::int64_t> largest(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < sizes.size(); ++i) largest[groups[i]] = std::max(largest[groups[i]], sizes[i]);
  return largest;
}

Offsets allocate_cursor(std::span<const std::int64_t> sizes, std::int64_t parameters, int templates) {
  Offsets offsets;
  std::int64_t cursor = 0;
  for (const std::int64_t n : sizes) {
    std::vector<std::int64_t>& starts = offsets.emplace_back();
    const std::int64_t slots = parameters / n, count = std::min<std::int64_t>(templates, slots);
    if (slots == 0) continue;
    const std::int64_t first = (cursor + n - 1) / n;
    for (std::int64_t j = 0; j < count; ++j) starts.push_back((first + j) % slots * n);
    cursor = starts.back() + n;
    if (cursor >= parameters) cursor = 0;
  }
  return offsets;
}

Offsets allocate_ref_block(std::span<const Shape> shapes, std::int64_t parameters, int templates) {
  Offsets offsets(shapes.size());
  std::map<std::int64_t, std::int64_t> counters;  // by block length
  std::int64_t stagger = 0;
  for (const std::vector<int>& layers : by_frequency(shapes)) {
    const std::int64_t n = shapes[layers.front()].size();
    if (n > parameters) continue;
    const std::int64_t count = std::min<std::int64_t>(templates, parameters / n), block = count * n;
    auto [counter, first_seen] = counters.try_emplace(block, (stagger + block - 1) / block);
    if (first_seen) {
      if (counter->second >= count)
        stagger = counter->second = 0;
      else
        stagger += block;
    }
    for (const int layer : layers) {
      if (counter->second * block + block > parameters) counter->second = 0;
      const std::int64_t start = counter->second++ * block;
      for (std::int64_t k = 0; k < count; ++k) offsets[layer].push_back(start + k * n);
    }
  }
  return offsets;
}

Offsets allocate_one(std::span<const std::int64_t> sizes, std::int64_t parameters, int templates) {
  Offsets offsets;
  std::int64_t position = 0;
  for (const std::int64_t n : sizes) {
    const std::int64_t count = std::min<std::int64_t>(templates, parameters / n);
    offsets.emplace_back();
    if (count > 0) offsets.back().push_back(position % count * n);
    ++position;
  }
  return offsets;
}

std::int64_t even_template(std::int64_t parameters, int templates) {
  return std::max<std::int64_t>(1, parameters / templates);
}

Grid aspect_grid(std::int64_t parameters, const Shape& shape) {
  const std::int64_t out = shape[0], rest = shape.size() / out;
  const Wide square = static_cast<Wide>(parameters) * out / rest;
  auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(square)));
  while (static_cast<Wide>(rows) * rows > square) --rows;
  while (static_cast<Wide>(rows + 1) * (rows + 1) <= square) ++rows;
  rows = std::clamp<std::int64_t>(rows, 1, parameters);
  return {rows, parameters / rows};
}

Grid ref_grid(std::int64_t parameters, const Shape& shape) {
  const auto part = [](double p, std::int64_t n) {  // half to even
    return static_cast<std::int64_t>(std::nearbyint(p * static_cast<double>(n)));
  };
  const std::int64_t out = shape[0], in = shape.rank() > 1 ? shape[1] : 1, filter = shape.size() / (out * in);
  double p = 0.95;
  for (int step = 0; step < 19; ++step, p -= 0.05) {  // with its rounding errors, as published
    const Grid grid{part(p, out), part(p, in) * filter};
    if (grid.rows * grid.cols > parameters) continue;
    if (grid.rows * grid.cols > 0) return grid;
    break;
  }
  fail_usage("plan",
             "a weight of {} cannot be resized from {} parameters by the rule 'ref': it is too large, or has "
             "too short a side; choose inter 'aspect'",
             shape.text(), grouped(parameters));
}

std::vector<std::vector<int>> by_frequency(std::span<const Shape> shapes) {
  std::vector<std::vector<int>> classes;
  for (int i = 0; i < static_cast<int>(shapes.size()); ++i) {
    const auto same = std::find_if(classes.begin(), classes.end(),
                                   [&](const std::vector<int>& c) { return shapes[c.front()] == shapes[i]; });
    if (same == classes.end())
      classes.push_back({i});
    else
      same->push_back(i);
  }
  std::stable_sort(classes.begin(), classes.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return classes;
}

}  // namespace ssn
