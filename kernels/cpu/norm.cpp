#include "kernels/norm.h"

#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {
/// A value for each element of a step.
template <class T>
struct alignas(64) Wide {
  T v[Columns::kWidth];
};

/// What normalise() needs, for each element of a step.
template <class T>
struct Channels {
  Wide<T> mean, scale, bias;

  Channels(const Columns& columns, double eps, const T* m, const T* var, const T* gain, const T* b) {
    columns.spread([&](std::int64_t c) { return m[c]; }, mean.v);
    columns.spread([&](std::int64_t c) { return static_cast<T>(gain[c] / std::sqrt(var[c] + eps)); },
                   scale.v);
    columns.spread([&](std::int64_t c) { return b[c]; }, bias.v);
  }
};

/// squares[i] += (x[i] − mean[i])², i < n
template <class T>
[[gnu::noinline]] void add_squares(const T* x, int n, const Wide<T>& mean, Wide<T>& squares) {
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    const T d = x[i] - mean.v[i];
    squares.v[i] += d * d;
  }
}

/// sum[i] += gz and dot[i] += gz · (x[i] − mean[i]), i < n; gz is the gradient before the ReLU
template <bool kRelu, class T>
[[gnu::noinline]] void add_gradients(const T* x, const T* gy, int n, std::int64_t ahead,
                                     const Channels<T>& channels, Wide<T>& sum, Wide<T>& dot) {
  const auto add = [&](int begin, int end) {
#pragma omp simd
    for (int i = begin; i < end; ++i) {
      const T mean = channels.mean.v[i];
      const T z = normalise(x[i], mean, channels.scale.v[i], channels.bias.v[i]);
      const T gz = kRelu ? relu_gradient(z, gy[i]) : gy[i];
      sum.v[i] += gz;
      dot.v[i] = std::fma(gz, x[i] - mean, dot.v[i]);
    }
  };
  in_strips(n, ahead, add, x, gy);
}

/// f with both truth values as constants.
template <class F>
void with_constants(bool a, bool b, F&& f) {
  const auto second = [&](auto first) { b ? f(first, std::true_type{}) : f(first, std::false_type{}); };
  a ? second(std::true_type{}) : second(std::false_type{});
}
}  // namespace

namespace {
/// A chunk's mean and Σ (x − mean)² of each column, in two passes.
template <class T>
void chunk_statistics(const Columns& columns, std::int64_t begin, std::int64_t end, const T* x, T* mean,
                      T* squares) {
  Wide<T> sums{}, means;
  columns.steps(begin, end, [&](std::int64_t at, int n) { add_step(x + at, n, columns.ahead<T>(), sums.v); });
  columns.gather(sums.v, mean);
  for (int c = 0; c < columns.count; ++c) mean[c] /= static_cast<T>(end - begin);
  columns.spread([&](std::int64_t c) { return mean[c - columns.first]; }, means.v);
  sums = {};
  columns.steps(begin, end, [&](std::int64_t at, int n) { add_squares(x + at, n, means, sums); });
  columns.gather(sums.v, squares);
}
}  // namespace

template <class T>
void batch_norm_statistics(CpuQueue&, std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* var,
                           T* workspace) {
  const Chunks chunks(rows, channels);
  for_columns(channels, [&](const Columns& columns) {
    const auto chunk_mean = [&](std::int64_t chunk) {
      return workspace + 2 * chunk * channels + columns.first;
    };
    const auto chunk_squares = [&](std::int64_t chunk) { return chunk_mean(chunk) + channels; };
    for_chunks(chunks, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      chunk_statistics(columns, begin, end, x, chunk_mean(chunk), chunk_squares(chunk));
    });
    const auto over_chunks = [&](auto&& f) {
      for (std::int64_t k = 0; k < chunks.count; ++k) {
        const double n = static_cast<double>(chunks.end(k) - chunks.begin(k));
        for (int c = 0; c < columns.count; ++c) f(k, n, c);
      }
    };
    double total[Columns::kWidth] = {}, squares[Columns::kWidth] = {};
    over_chunks([&](std::int64_t k, double n, int c) { total[c] += n * chunk_mean(k)[c]; });
    for (int c = 0; c < columns.count; ++c) total[c] /= static_cast<double>(rows);
    over_chunks([&](std::int64_t k, double n, int c) {
      const double d = chunk_mean(k)[c] - total[c];
      squares[c] += chunk_squares(k)[c] + n * d * d;
    });
    for (int c = 0; c < columns.count; ++c) {
      mean[columns.first + c] = static_cast<T>(total[c]);
      var[columns.first + c] = static_cast<T>(squares[c] / static_cast<double>(rows));
    }
  });
}

template <class T>
void batch_norm_update(CpuQueue&, std::int64_t rows, std::int64_t channels, double momentum, const T* mean,
                       const T* var, T* running_mean, T* running_var) {
  const double n = static_cast<double>(rows), unbiased = rows > 1 ? n / (n - 1) : 1;
  for (std::int64_t c = 0; c < channels; ++c) {
    running_mean[c] = static_cast<T>((1 - momentum) * running_mean[c] + momentum * mean[c]);
    running_var[c] = static_cast<T>((1 - momentum) * running_var[c] + momentum * unbiased * var[c]);
  }
}

template <class T>
void batch_norm_forward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps, bool relu,
                        const T* x, const T* mean, const T* var, const T* gain, const T* bias, T* y) {
  const Chunks chunks(rows, channels);
  for_columns(channels, [&](const Columns& columns) {
    const Channels<T> wide(columns, eps, mean, var, gain, bias);
    with_constants(relu, false, [&](auto cut, auto) {
      for_chunks(chunks, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        columns.steps(begin, end, [&](std::int64_t at, int n) {
#pragma omp simd
          for (int i = 0; i < n; ++i) {
            const T z = normalise(x[at + i], wide.mean.v[i], wide.scale.v[i], wide.bias.v[i]);
            y[at + i] = cut ? kernels::relu(z) : z;
          }
        });
      });
    });
  });
}

namespace {
/// The sums of one backward pass over the chunks: workspace gets, a chunk, Σ gz and Σ gz (x − mean).
template <class T>
void gradient_sums(const Chunks& chunks, std::int64_t channels, bool relu, const Columns& columns,
                   const Channels<T>& wide, const T* x, const T* gy, T* workspace) {
  with_constants(relu, false, [&](auto cut, auto) {
    for_chunks(chunks, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      Wide<T> sum{}, dot{};
      columns.steps(begin, end, [&](std::int64_t at, int n) {
        add_gradients<decltype(cut)::value>(x + at, gy + at, n, columns.ahead<T>(), wide, sum, dot);
      });
      columns.gather(sum.v, workspace + 2 * chunk * channels + columns.first);
      columns.gather(dot.v, workspace + (2 * chunk + 1) * channels + columns.first);
    });
  });
}

/// gx, from what each channel's statistics carry.
template <class T>
void input_gradient(const Chunks& chunks, bool relu, const Columns& columns, const Channels<T>& wide,
                    const Wide<T>& gz_mean, const Wide<T>& slope, const T* x, const T* gy, T* gx, bool add) {
  with_constants(relu, add, [&](auto cut, auto adds) {
    for_chunks(chunks, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
      columns.steps(begin, end, [&](std::int64_t at, int n) {
#pragma omp simd
        for (int i = 0; i < n; ++i) {
          const T mean = wide.mean.v[i], scale = wide.scale.v[i];
          const T value = x[at + i], g = gy[at + i];
          const T gz = cut ? relu_gradient(normalise(value, mean, scale, wide.bias.v[i]), g) : g;
          const T result = normalise_gradient(gz, gz_mean.v[i], value - mean, slope.v[i], scale);
          gx[at + i] = adds ? gx[at + i] + result : result;
        }
      });
    });
  });
}
}  // namespace

template <class T>
void batch_norm_backward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps, bool relu,
                         bool batch_statistics, const T* x, const T* mean, const T* var, const T* gain,
                         const T* bias, const T* gy, const NormGradients<T>& out, T* workspace) {
  const Chunks chunks(rows, channels);
  for_columns(channels, [&](const Columns& columns) {
    const Channels<T> wide(columns, eps, mean, var, gain, bias);
    gradient_sums(chunks, channels, relu, columns, wide, x, gy, workspace);
    double sum[Columns::kWidth] = {}, dot[Columns::kWidth] = {};
    add_chunks(chunks.count, 2 * channels, workspace + columns.first, columns.count, sum);
    add_chunks(chunks.count, 2 * channels, workspace + channels + columns.first, columns.count, dot);
    Wide<T> gz_mean, slope;
    for (int i = 0; i < columns.count; ++i) {
      const std::int64_t c = columns.first + i;
      const double n = static_cast<double>(rows), power = var[c] + eps;
      if (out.ggain) out.ggain[c] += static_cast<T>(dot[i] / std::sqrt(power));
      if (out.gbias) out.gbias[c] += static_cast<T>(sum[i]);
      gz_mean.v[i] = batch_statistics ? static_cast<T>(sum[i] / n) : T(0);
      slope.v[i] = batch_statistics ? static_cast<T>(-dot[i] / power / n) : T(0);
    }
    if (!out.gx) return;
    columns.spread([&](std::int64_t c) { return slope.v[c - columns.first]; }, slope.v);
    columns.spread([&](std::int64_t c) { return gz_mean.v[c - columns.first]; }, gz_mean.v);
    input_gradient(chunks, relu, columns, wide, gz_mean, slope, x, gy, out.gx, out.add_gx);
  });
}

template void batch_norm_statistics<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, float*,
                                           float*, float*);
template void batch_norm_statistics<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, double*,
                                            double*, double*);
template void batch_norm_update<float>(CpuQueue&, std::int64_t, std::int64_t, double, const float*,
                                       const float*, float*, float*);
template void batch_norm_update<double>(CpuQueue&, std::int64_t, std::int64_t, double, const double*,
                                        const double*, double*, double*);
template void batch_norm_forward<float>(CpuQueue&, std::int64_t, std::int64_t, double, bool, const float*,
                                        const float*, const float*, const float*, const float*, float*);
template void batch_norm_forward<double>(CpuQueue&, std::int64_t, std::int64_t, double, bool, const double*,
                                         const double*, const double*, const double*, const double*, double*);
template void batch_norm_backward<float>(CpuQueue&, std::int64_t, std::int64_t, double, bool, bool,
                                         const float*, const float*, const float*, const float*, const float*,
                                         const float*, const NormGradients<float>&, float*);
template void batch_norm_backward<double>(CpuQueue&, std::int64_t, std::int64_t, double, bool, bool,
                                          const double*, const double*, const double*, const double*,
                                          const double*, const double*, const NormGradients<double>&,
                                          double*);

}  // namespace ssn::kernels
