#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/generate.h"
#include "runtime/hd.h"

// Layers taken apart into terms, for the CPU and the device; and the order in which the CPU walks theta.
namespace ssn::kernels {

/// Blocks of `size` elements that cover n.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t size) {
  return (n + size - 1) / size;
}

/// Elements of theta that a tiled layer repeats.
template <class T>
std::int64_t tile_of(const GeneratedLayer<T>& l, std::int64_t group_size) {
  return l.tile > 0 ? l.tile : group_size;
}

/// One product of a layer's weight: for i < size, w[i] takes gain · coefficient[i mod period] · theta[first +
/// i]. A template is a term, and so is a tile.
template <class T>
struct Term {
  std::int64_t first, size;
  std::int64_t period;    // 0: the coefficient is 1 and has no gradient
  const T* coefficients;  // (period)
  T* coefficients_grad;   // (period) or null
  const T* weight_grad;   // (size)
  T gain;
  std::int64_t partials = 0;  // where its partial sums start: a row of `width` for each stretch that it meets

  SSN_HD std::int64_t end() const { return first + size; }
  SSN_HD std::int64_t first_stretch(std::int64_t stretch) const { return first / stretch; }
  SSN_HD std::int64_t stretches(std::int64_t stretch) const {
    return (end() - 1) / stretch - first_stretch(stretch) + 1;
  }
  SSN_HD std::int64_t width(std::int64_t stretch) const { return period < stretch ? period : stretch; }
};

/// f(term) for all terms of the layers, in the order of the list, k or t ascending. `stretch`: the elements
/// of theta that one partial sum covers; stretches start at its multiples.
template <class T, class F>
void for_each_term(std::span<const GeneratedLayer<T>> layers, std::int64_t group_size, std::int64_t stretch,
                   F&& f) {
  using Method = typename GeneratedLayer<T>::Method;
  std::int64_t partials = 0;
  const auto emit = [&](Term<T> term) {
    if (term.size <= 0) return;
    term.partials = partials;
    partials += term.stretches(stretch) * term.width(stretch);
    f(term);
  };
  for (const auto& l : layers) {
    const bool wants = l.coefficients_grad != nullptr;
    if (l.method == Method::exact) {
      emit({l.offsets[0], l.n, 0, nullptr, nullptr, l.weight_grad, l.gain});
    } else if (l.method == Method::templates) {
      for (int k = 0; k < l.templates; ++k)
        emit({l.offsets[k], l.n, 1, l.coefficients + k, wants ? l.coefficients_grad + k : nullptr,
              l.weight_grad, l.gain});
    } else {
      const std::int64_t tile = tile_of(l, group_size);
      for (std::int64_t t = 0, at = 0; at < l.n; ++t, at += tile) {
        const std::int64_t row = (t - 1) * l.window;
        const bool masked = t > 0 && l.coefficients;
        emit({0, std::min(tile, l.n - at), masked ? l.window : 0, masked ? l.coefficients + row : nullptr,
              masked && wants ? l.coefficients_grad + row : nullptr, l.weight_grad + at, l.gain});
      }
    }
  }
}

/// Sizes of what for_each_term makes.
struct TermCounts {
  std::int64_t terms = 0, partials = 0, meetings = 0;  // meetings: pairs of a term and a stretch
};
template <class T>
TermCounts count_terms(std::span<const GeneratedLayer<T>> layers, std::int64_t group_size,
                       std::int64_t stretch) {
  TermCounts c;
  for_each_term(layers, group_size, stretch, [&](const Term<T>& t) {
    ++c.terms;
    c.meetings += t.stretches(stretch);
    c.partials = t.partials + t.stretches(stretch) * t.width(stretch);
  });
  return c;
}

/// The distance in theta at which most of the work reads the same weight element again: layers' templates
/// lie at multiples of n, so whatever has the same place modulo a common n is worked on together while it
/// is in the cache. 0 if no distance serves half of the work, or if one round over theta (a `chunk` each)
/// would not stay in the cache.
template <class T>
std::int64_t common_period(std::span<const GeneratedLayer<T>> layers, std::int64_t group_size,
                           std::int64_t chunk) {
  constexpr std::int64_t kMostRounds = 256;
  const auto period = [&](const GeneratedLayer<T>& l) {
    return l.method == GeneratedLayer<T>::Method::tiles ? tile_of(l, group_size) : l.n;
  };
  const auto work = [](const GeneratedLayer<T>& l) { return l.n * l.templates; };
  std::int64_t best = 0, best_work = 0, all = 0;
  for (const auto& l : layers) all += work(l);
  for (const auto& candidate : layers) {
    const std::int64_t p = period(candidate);
    if (p == best || p < chunk || p * kMostRounds < group_size) continue;
    std::int64_t served = 0;
    for (const auto& l : layers) served += period(l) % p == 0 ? work(l) : 0;
    if (served > best_work || (served == best_work && p > best)) best = p, best_work = served;
  }
  return 2 * best_work >= all ? best : 0;
}

/// The stretches of theta, ordered by their start modulo `period`.
struct StretchOrder {
  std::int64_t group_size, period, stretch;

  SSN_HD std::int64_t rounds() const { return (group_size + period - 1) / period; }
  /// Numbers that `at` takes.
  SSN_HD std::int64_t size() const { return (period + stretch - 1) / stretch * rounds(); }
  /// The stretch at a place of the order; −1 at places that have none.
  SSN_HD std::int64_t at(std::int64_t place) const {
    const std::int64_t round = place % rounds(),
                       s = place / rounds() + (round * period + stretch - 1) / stretch;
    const std::int64_t end = (round + 1) * period < group_size ? (round + 1) * period : group_size;
    return s * stretch < end ? s : -1;
  }
};

}  // namespace ssn::kernels
