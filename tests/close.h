#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "runtime/tensor.h"

// The one place where numbers are compared.
namespace ssn::test {

/// The largest absolute value; at least `least`.
inline double scale_of(std::span<const double> values, double least = 0) {
  for (double v : values) least = std::max(least, std::abs(v));
  return least;
}

/// Element by element: |got − want| <= tolerance · scale. NaN fails, also where both are NaN; infinities must
/// be equal.
inline testing::AssertionResult close(std::span<const double> got, std::span<const double> want,
                                      double tolerance, double scale) {
  if (got.size() != want.size())
    return testing::AssertionFailure() << got.size() << " elements, expected " << want.size();
  const double bound = tolerance * scale;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i]) && got[i] == want[i]) continue;
    if (!(std::abs(got[i] - want[i]) <= bound))
      return testing::AssertionFailure()
             << fmt::format("element {} of {}: {:.17g}, expected {:.17g}, off by {:.3g}, bound {:.3g}", i,
                            got.size(), got[i], want[i], std::abs(got[i] - want[i]), bound);
  }
  return testing::AssertionSuccess();
}
inline testing::AssertionResult close(std::span<const double> got, std::span<const double> want,
                                      double tolerance) {
  return close(got, want, tolerance, scale_of(want));
}

/// Any tensor's values as doubles.
inline std::vector<double> values_of(const Tensor& t) {
  const Tensor d = t.to(Device::cpu).to(DType::f64);
  const auto s = d.span<double>();
  return {s.begin(), s.end()};
}

/// The same type, shape and bytes.
inline testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return testing::AssertionFailure()
           << a.shape().text() << " and " << b.shape().text() << ", or their types differ";
  const Tensor x = a.to(Device::cpu), y = b.to(Device::cpu);
  const std::size_t width = size_of(a.dtype());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * width;
    if (std::memcmp(static_cast<char*>(x.raw()) + at, static_cast<char*>(y.raw()) + at, width) != 0)
      return testing::AssertionFailure() << fmt::format(
                 "element {} of {} differs in its bits: {:.17g} and {:.17g}", i, x.size(),
                 values_of(x)[static_cast<std::size_t>(i)], values_of(y)[static_cast<std::size_t>(i)]);
  }
  return testing::AssertionSuccess();
}

}  // namespace ssn::test
