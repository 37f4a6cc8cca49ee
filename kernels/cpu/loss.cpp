#include "kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/functors.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
std::int64_t rows_a_part(std::int64_t classes) {
  return 1 + 2048 / std::max<std::int64_t>(classes, 1);
}

/// A row's largest logit m, Σ exp(x − m) and Σ (x − m).
template <class T>
struct RowSums {
  T most;
  double sum, centred;
};
template <class T>
SSN_CLONES void row_sums(std::int64_t classes, const T* x, RowSums<T>* row) {
  constexpr std::int64_t kBlock = 1024;  // added up in T
  T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
  for (std::int64_t c = 0; c < classes; ++c) most = x[c] > most ? x[c] : most;
  *row = {most, 0, 0};
  for (std::int64_t begin = 0; begin < classes; begin += kBlock) {
    const std::int64_t end = std::min(classes, begin + kBlock);
    T sum = 0, centred = 0;
#pragma omp simd reduction(+ : sum, centred)
    for (std::int64_t c = begin; c < end; ++c) {
      centred += x[c] - most;
      sum += exp_below_0(x[c] - most);
    }
    row->sum += sum;
    row->centred += centred;
  }
}

/// gx = factor (exp(x − most) / sum − target)
template <class T>
SSN_CLONES void row_gradient(std::int64_t classes, const T* x, T most, T sum, T target, T factor, T* gx) {
  const T share = 1 / sum;
#pragma omp simd
  for (std::int64_t c = 0; c < classes; ++c) gx[c] = factor * (exp_below_0(x[c] - most) * share - target);
}

/// The loss of one row with a label.
template <class T>
double row_loss(std::int64_t classes, double smoothing, const T* x, std::int32_t label,
                const RowSums<T>& row) {
  const double at_label =
      label < classes ? static_cast<double>(x[label]) - row.most : std::numeric_limits<double>::quiet_NaN();
  const double n = static_cast<double>(classes), log_sum = std::log(row.sum);
  // Without smoothing the logits of the other classes may be infinite.
  return smoothing == 0 ? log_sum - at_label
                        : log_sum - (1 - smoothing) * at_label - smoothing / n * row.centred;
}

template <class T>
std::int64_t label_rank(std::int64_t classes, const T* x, std::int32_t label) {
  if (label < 0 || label >= classes) return classes;
  const T own = x[label];
  std::int64_t before = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const bool behind = x[c] < own || (x[c] == own && c > label);
    before += c != label && !behind;
  }
  return before;
}
}  // namespace

template <class T>
void cross_entropy_forward(CpuQueue&, std::int64_t rows, std::int64_t classes, double smoothing, const T* x,
                           const std::int32_t* labels, T* loss, T* statistics) {
  parallel_for(rows, rows_a_part(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      RowSums<T> row;
      row_sums(classes, x + r * classes, &row);
      statistics[2 * r] = row.most;
      statistics[2 * r + 1] = static_cast<T>(row.sum);
      loss[r] = labels[r] < 0 ? T(0)
                              : static_cast<T>(row_loss(classes, smoothing, x + r * classes, labels[r], row));
    }
  });
}

template <class T>
void cross_entropy_backward(CpuQueue&, std::int64_t rows, std::int64_t classes, double smoothing,
                            double scale, const T* x, const T* statistics, const std::int32_t* labels,
                            const T* gloss, T* gx) {
  const T factor = static_cast<T>(scale * *gloss);
  const double share = smoothing / static_cast<double>(classes);
  const T others = static_cast<T>(share), target = static_cast<T>(1 - smoothing + share);
  parallel_for(rows, rows_a_part(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* const to = gx + r * classes;
      const std::int32_t label = labels[r];
      if (label < 0 || label >= classes) {
        std::fill_n(to, classes, label < 0 ? T(0) : std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      const T* const from = x + r * classes;
      const T most = statistics[2 * r], sum = statistics[2 * r + 1];
      row_gradient(classes, from, most, sum, others, factor, to);
      to[label] = factor * (exp_below_0(from[label] - most) / sum - target);
    }
  });
}

template <class T>
void label_ranks(CpuQueue&, std::int64_t rows, std::int64_t classes, const T* x, const std::int32_t* labels,
                 T* rank) {
  parallel_for(rows, rows_a_part(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      rank[r] = static_cast<T>(label_rank(classes, x + r * classes, labels[r]));
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
                                            const float*, const float*, const std::int32_t*, const float*,
                                            float*);
template void cross_entropy_backward<double>(CpuQueue&, std::int64_t, std::int64_t, double, double,
                                             const double*, const double*, const std::int32_t*, const double*,
                                             double*);
template void label_ranks<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, const std::int32_t*,
                                 float*);
template void label_ranks<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, const std::int32_t*,
                                  double*);
template void scaled_sum<float>(CpuQueue&, std::int64_t, double, const float*, float*);
template void scaled_sum<double>(CpuQueue&, std::int64_t, double, const double*, double*);

}  // namespace ssn::kernels
