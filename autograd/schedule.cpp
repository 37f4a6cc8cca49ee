#include "autograd/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/error.h"

namespace ssn {

void check_schedule(const ScheduleOptions& o) {
  check_usage(o.lr >= 0 && std::isfinite(o.lr), "schedule",
              "the learning rate must be finite and at least 0, found {}", o.lr);
  check_usage(o.final_lr >= 0 && std::isfinite(o.final_lr), "schedule",
              "the final learning rate must be finite and at least 0, found {}", o.final_lr);
  check_usage(o.epochs >= 0, "schedule", "the epochs must be at least 0, found {}", o.epochs);
  check_usage(o.warmup >= 0 && o.warmup <= o.epochs, "schedule",
              "the warm-up must be between 0 and the {} epochs of the run, found {}", o.epochs, o.warmup);
  check_usage(o.factor > 0 && std::isfinite(o.factor), "schedule", "the factor must be positive, found {}",
              o.factor);
  check_usage(o.every >= 0 && std::isfinite(o.every), "schedule",
              "the epochs between falls must be at least 0, found {}", o.every);
  check_usage(std::is_sorted(o.milestones.begin(), o.milestones.end()), "schedule",
              "the epochs of the steps must ascend");
}

double learning_rate(const ScheduleOptions& o, std::int64_t step, std::int64_t steps_per_epoch) {
  const double per_epoch = static_cast<double>(steps_per_epoch), at = static_cast<double>(step);
  const double warmup = std::round(o.warmup * per_epoch), all = std::round(o.epochs * per_epoch);
  if (at < warmup) return o.lr * (at + 1) / warmup;
  const double t = std::clamp((at - warmup) / std::max(1.0, all - warmup), 0.0, 1.0);
  switch (o.kind) {
    case ScheduleKind::constant: break;
    case ScheduleKind::cosine:
      return o.final_lr + (o.lr - o.final_lr) * (1 + std::cos(std::numbers::pi * t)) / 2;
    case ScheduleKind::linear: return o.final_lr + (o.lr - o.final_lr) * (1 - t);
    case ScheduleKind::exponential: {
      if (o.every == 0) return o.lr * std::pow(o.factor, at / per_epoch);
      const double steps = std::max(1.0, std::round(o.every * per_epoch));
      return o.lr * std::pow(o.factor, std::floor(at / steps));
    }
    case ScheduleKind::steps: {
      const auto passed = std::count_if(o.milestones.begin(), o.milestones.end(),
                                        [&](double epoch) { return at >= std::round(epoch * per_epoch); });
      return o.lr * std::pow(o.factor, static_cast<double>(passed));
    }
  }
  return o.lr;
}

}  // namespace ssn
