#include "ssn/budget.h"

#include "runtime/error.h"
#include "runtime/progress.h"
#include "ssn/wide.h"

namespace ssn {
namespace {
constexpr std::int64_t kMost = std::int64_t{1} << 40;  // parameters; more fits no machine
constexpr int kDigits = 16;                            // so that 100 · 10^places fits in 64 bits
constexpr const char* kForms = "give it as in 25%, 0.25x, 97000, 97K, 1.5M, 2G, largest or dense";

/// digits / scale, exact.
struct Decimal {
  std::int64_t digits = 0, scale = 1;
};

Decimal parse_decimal(std::string_view number, std::string_view text) {
  Decimal d;
  bool point = false, any = false;
  int length = 0;
  for (char c : number) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    check_usage(c >= '0' && c <= '9', "budget", "'{}' is not a budget: {}", text, kForms);
    any = true;
    length += point || d.digits != 0 || c != '0';
    check_usage(length <= kDigits, "budget", "'{}' has more than {} digits: {}", text, kDigits, kForms);
    d.digits = 10 * d.digits + (c - '0');
    if (point) d.scale *= 10;
  }
  check_usage(any, "budget", "'{}' is not a budget: {}", text, kForms);
  return d;
}

/// 1 if c is no unit.
std::int64_t unit_of(char c) {
  switch (c) {
    case 'K':
    case 'k': return 1'000;
    case 'M':
    case 'm': return 1'000'000;
    case 'G':
    case 'g': return 1'000'000'000;
    default: return 1;
  }
}
}  // namespace

Budget Budget::parse(std::string_view text) {
  Budget b;
  b.text_ = text;
  if (text == "largest" || text == "dense") {
    b.kind_ = text == "dense" ? Kind::dense : Kind::largest;
    return b;
  }
  check_usage(!text.empty(), "budget", "it is empty: {}", kForms);
  check_usage(text.front() != '-', "budget", "'{}' is negative: {}", text, kForms);
  const char last = text.back();
  const std::int64_t unit = unit_of(last);
  const bool share = last == '%' || last == 'x';
  if (share || unit > 1) text.remove_suffix(1);
  const Decimal d = parse_decimal(text, b.text_);
  check_usage(d.digits > 0, "budget", "'{}' is zero: {}", b.text_, kForms);
  if (share) {
    b.numerator_ = d.digits;
    b.denominator_ = last == '%' ? 100 * d.scale : d.scale;
  } else {
    b.kind_ = Kind::absolute;
    const Wide scaled = static_cast<Wide>(d.digits) * unit;
    check_usage(scaled % d.scale == 0, "budget", "'{}' is not a whole number of parameters: {}", b.text_,
                kForms);
    check_usage(scaled / d.scale <= kMost, "budget", "'{}' is more than fits: at most {} parameters", b.text_,
                grouped(kMost));
    b.numerator_ = static_cast<std::int64_t>(scaled / d.scale);
    b.denominator_ = 1;
  }
  return b;
}

std::int64_t Budget::resolve(std::int64_t all) const {
  check(kind_ == Kind::share || kind_ == Kind::absolute, "budget",
        "'{}' is no number before the groups are known", text_);
  if (kind_ == Kind::absolute) return numerator_;
  const Wide parameters = static_cast<Wide>(numerator_) * all / denominator_;
  check_usage(parameters >= 1, "budget", "{} of {} parameters is less than one parameter", text_,
              grouped(all));
  check_usage(parameters <= kMost, "budget", "{} of {} parameters is more than fits: at most {} parameters",
              text_, grouped(all), grouped(kMost));
  return static_cast<std::int64_t>(parameters);
}

}  // namespace ssn
