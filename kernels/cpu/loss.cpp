#include "kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
std::int64_t rows_a_part(std::int64_t classes) {
  return 1 + 2048 / std::max<std::int64_t>(classes, 1);
}

/// The loss of one row with a label; p = softmax(x).
template <class T>
double row_forward(std::int64_t classes, double smoothing, const T* x, std::int32_t label, T* p) {
  T most = -std::numeric_limits<T>::infinity();
  for (std::int64_t c = 0; c < classes; ++c) most = x[c] > most || x[c] != x[c] ? x[c] : most;
  const double at_label =
      label < classes ? static_cast<double>(x[label]) - most : std::numeric_limits<double>::quiet_NaN();
  double all = 0, sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const T d = x[c] - most;
    p[c] = std::exp(d);
    all += d;
    sum += p[c];
  }
  for (std::int64_t c = 0; c < classes; ++c) p[c] = static_cast<T>(p[c] / sum);
  const double n = static_cast<double>(classes), log_sum = std::log(sum);
  // Without smoothing the logits of the other classes may be infinite.
  return smoothing == 0 ? log_sum - at_label : log_sum - (1 - smoothing) * at_label - smoothing / n * all;
}
}  // namespace

template <class T>
void cross_entropy_forward(CpuQueue&, std::int64_t rows, std::int64_t classes, double smoothing, const T* x,
                           const std::int32_t* labels, T* loss, T* p) {
  parallel_for(rows, rows_a_part(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double l =
          row_forward(classes, smoothing, x + r * classes, labels[r] < 0 ? 0 : labels[r], p + r * classes);
      loss[r] = labels[r] < 0 ? T(0) : static_cast<T>(l);
    }
  });
}

template <class T>
void cross_entropy_backward(CpuQueue&, std::int64_t rows, std::int64_t classes, double smoothing,
                            double scale, const T* p, const std::int32_t* labels, const T* gloss, T* gx) {
  const T factor = static_cast<T>(scale * *gloss);
  const double share = smoothing / static_cast<double>(classes);
  const T others = static_cast<T>(share), target = static_cast<T>(1 - smoothing + share);
  parallel_for(rows, rows_a_part(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* from = p + r * classes;
      T* to = gx + r * classes;
      const std::int32_t label = labels[r];
      if (label < 0) {
        std::fill_n(to, classes, T(0));
        continue;
      }
      if (label >= classes) {
        std::fill_n(to, classes, std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      const T at_label = factor * (from[label] - target);
      for (std::int64_t c = 0; c < classes; ++c) to[c] = factor * (from[c] - others);
      to[label] = at_label;
    }
  });
}

template <class T>
void scaled_sum(CpuQueue&, std::int64_t n, double scale, const T* x, T* total) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  *total = static_cast<T>(scale * sum);
}

template void cross_entropy_forward<float>(CpuQueue&, std::int64_t, std::int64_t, double, const float*,
                                           const std::int32_t*, float*, float*);
template void cross_entropy_forward<double>(CpuQueue&, std::int64_t, std::int64_t, double, const double*,
                                            const std::int32_t*, double*, double*);
template void cross_entropy_backward<float>(CpuQueue&, std::int64_t, std::int64_t, double, double,
                                            const float*, const std::int32_t*, const float*, float*);
template void cross_entropy_backward<double>(CpuQueue&, std::int64_t, std::int64_t, double, double,
                                             const double*, const std::int32_t*, const double*, double*);
template void scaled_sum<float>(CpuQueue&, std::int64_t, double, const float*, float*);
template void scaled_sum<double>(CpuQueue&, std::int64_t, double, const double*, double*);

}  // namespace ssn::kernels
