#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ssn {

/// How many parameters the groups have together, as the user says it: a share of what can be shared (`25%`,
/// `0.25x`; rounded down), a number (`97000`, `97K`, `1.5M`, `2G`; powers of 1000), `largest` (each group as
/// large as its largest layer) or `dense` (nothing is shared: each layer is a group of its own).
class Budget {
 public:
  enum class Kind : std::uint8_t { share, absolute, largest, dense };

  Budget() = default;  // 25%
  /// Wrong text is a UsageError that says what is possible.
  static Budget parse(std::string_view text);

  Kind kind() const { return kind_; }
  /// As it was given.
  const std::string& text() const { return text_; }
  /// The number of parameters, for a share of `all` or a number; a share that gives none is a UsageError.
  std::int64_t resolve(std::int64_t all) const;

 private:
  Kind kind_ = Kind::share;
  std::string text_ = "25%";
  std::int64_t numerator_ = 25, denominator_ = 100;  // a share, exact; a number is numerator_ / 1
};

}  // namespace ssn
