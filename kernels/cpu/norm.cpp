#include "kernels/norm.h"

#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {
template <int R>
using Rows = std::integral_constant<int, R>;

/// A value for each element of a step.
template <class T>
struct alignas(64) Wide {
  T v[Columns::kWidth];
};

/// The NormChannel of each element of a step.
template <class T>
struct Channels {
  Wide<T> mean, scale, bias;

  Channels(const Columns& columns, double eps, const T* m, const T* var, const T* gain, const T* b) {
    columns.spread([&](std::int64_t c) { return m[c]; }, mean.v);
    columns.spread([&](std::int64_t c) { return static_cast<T>(gain[c] / std::sqrt(var[c] + eps)); },
                   scale.v);
    columns.spread([&](std::int64_t c) { return b[c]; }, bias.v);
  }
  NormChannel<T> operator[](int i) const { return {mean.v[i], scale.v[i], bias.v[i]}; }
};

/// squares[i] += (x − mean[i])² over the R spans' elements
template <int R, class T>
void add_squares(const T* x, std::int64_t stride, int width, const Wide<T>& mean, Wide<T>& squares) {
#pragma omp simd
  for (int i = 0; i < width; ++i) {
    T sum = 0;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const T d = x[r * stride + i] - mean.v[i];
      sum += d * d;
    }
    squares.v[i] += sum;
  }
}

/// sum[i] += gz and dot[i] += gz · (x − mean) over the R spans' elements; gz is the gradient behind the ReLU
template <int R, bool kRelu, class T>
void add_gradients(const T* x, const T* gy, std::int64_t stride, int width, const Channels<T>& channels,
                   Wide<T>& sum, Wide<T>& dot) {
#pragma omp simd
  for (int i = 0; i < width; ++i) {
    const NormChannel<T> channel = channels[i];
    T s = 0, d = 0;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const T value = x[r * stride + i], g = gy[r * stride + i];
      const T gz = kRelu ? relu_gradient(channel(value), g) : g;
      s += gz;
      d = std::fma(gz, value - channel.mean, d);
    }
    sum.v[i] += s;
    dot.v[i] += d;
  }
}

/// f with both truth values as constants.
template <class F>
void with_constants(bool a, bool b, F&& f) {
  const auto second = [&](auto first) { b ? f(first, std::true_type{}) : f(first, std::false_type{}); };
  a ? second(std::true_type{}) : second(std::false_type{});
}
}  // namespace

template <class T>
void batch_norm_statistics(CpuQueue&, std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* var,
                           T* workspace) {
  const auto chunk_mean = [&](std::int64_t chunk) { return workspace + 2 * chunk * channels; };
  const auto chunk_squares = [&](std::int64_t chunk) { return workspace + (2 * chunk + 1) * channels; };
  for_columns(channels, [&](const Columns& columns) {
    for_chunks(rows, channels, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      Wide<T> wide{}, squares{};
      columns.steps(begin, end, [&]<int R>(Rows<R>, std::int64_t at, int width) {
        add_rows<R>(x + at, columns.stride, width, wide.v);
      });
      T* means = chunk_mean(chunk) + columns.first;
      columns.gather(wide.v, means);
      for (int c = 0; c < columns.count; ++c) means[c] /= static_cast<T>(end - begin);
      columns.spread([&](std::int64_t c) { return means[c - columns.first]; }, wide.v);
      columns.steps(begin, end, [&]<int R>(Rows<R>, std::int64_t at, int width) {
        add_squares<R>(x + at, columns.stride, width, wide, squares);
      });
      columns.gather(squares.v, chunk_squares(chunk) + columns.first);
    });
  });
  const std::int64_t chunks = chunk_count(rows, channels), size = chunk_rows(channels);
  const auto rows_of = [&](std::int64_t chunk) {
    return static_cast<double>(std::min(size, rows - chunk * size));
  };
  for (std::int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < chunks; ++i) sum += rows_of(i) * chunk_mean(i)[c];
    const double m = sum / static_cast<double>(rows);
    for (std::int64_t i = 0; i < chunks; ++i) {
      const double d = chunk_mean(i)[c] - m;
      squares += chunk_squares(i)[c] + rows_of(i) * d * d;
    }
    mean[c] = static_cast<T>(m);
    var[c] = static_cast<T>(squares / static_cast<double>(rows));
  }
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
  for_columns(channels, [&](const Columns& columns) {
    const Channels<T> wide(columns, eps, mean, var, gain, bias);
    with_constants(relu, false, [&](auto cut, auto) {
      for_chunks(rows, channels, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        columns.steps(begin, end, [&]<int R>(Rows<R>, std::int64_t at, int width) {
          for (int r = 0; r < R; ++r, at += columns.stride) {
#pragma omp simd
            for (int i = 0; i < width; ++i) {
              const T z = wide[i](x[at + i]);
              y[at + i] = cut ? kernels::relu(z) : z;
            }
          }
        });
      });
    });
  });
}

namespace {
/// The sums of one backward pass over the chunks: workspace gets, a chunk, Σ gz and Σ gz (x − mean).
template <class T>
void gradient_sums(std::int64_t rows, std::int64_t channels, bool relu, const Columns& columns,
                   const Channels<T>& wide, const T* x, const T* gy, T* workspace) {
  with_constants(relu, false, [&](auto cut, auto) {
    for_chunks(rows, channels, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      Wide<T> sum{}, dot{};
      columns.steps(begin, end, [&]<int R>(Rows<R>, std::int64_t at, int width) {
        add_gradients<R, decltype(cut)::value>(x + at, gy + at, columns.stride, width, wide, sum, dot);
      });
      columns.gather(sum.v, workspace + 2 * chunk * channels + columns.first);
      columns.gather(dot.v, workspace + (2 * chunk + 1) * channels + columns.first);
    });
  });
}

/// gx, from each channel's NormGradient.
template <class T>
void input_gradient(std::int64_t rows, std::int64_t channels, bool relu, const Columns& columns,
                    const Channels<T>& wide, const Wide<T>& gz_mean, const Wide<T>& slope, const T* x,
                    const T* gy, T* gx, bool add) {
  with_constants(relu, add, [&](auto cut, auto adds) {
    for_chunks(rows, channels, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
      columns.steps(begin, end, [&]<int R>(Rows<R>, std::int64_t at, int width) {
        for (int r = 0; r < R; ++r, at += columns.stride) {
#pragma omp simd
          for (int i = 0; i < width; ++i) {
            const NormChannel<T> channel = wide[i];
            const T value = x[at + i], g = gy[at + i];
            const T gz = cut ? relu_gradient(channel(value), g) : g;
            const T result =
                NormGradient<T>{gz_mean.v[i], slope.v[i]}(gz, channel.scale, value - channel.mean);
            gx[at + i] = adds ? gx[at + i] + result : result;
          }
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
  const std::int64_t chunks = chunk_count(rows, channels);
  for_columns(channels, [&](const Columns& columns) {
    const Channels<T> wide(columns, eps, mean, var, gain, bias);
    gradient_sums(rows, channels, relu, columns, wide, x, gy, workspace);
    Wide<T> gz_mean, slope;
    for (int i = 0; i < columns.count; ++i) {
      const std::int64_t c = columns.first + i;
      double sum = 0, dot = 0;
      for (std::int64_t k = 0; k < chunks; ++k) {
        sum += workspace[2 * k * channels + c];
        dot += workspace[(2 * k + 1) * channels + c];
      }
      const double rstd = 1 / std::sqrt(var[c] + eps);
      if (out.ggain) out.ggain[c] += static_cast<T>(rstd * dot);
      if (out.gbias) out.gbias[c] += static_cast<T>(sum);
      const auto g = batch_statistics ? NormGradient<T>::of(static_cast<double>(rows), rstd, sum, dot)
                                      : NormGradient<T>{0, 0};
      gz_mean.v[i] = g.gz_mean;
      slope.v[i] = g.slope;
    }
    if (!out.gx) return;
    columns.spread([&](std::int64_t c) { return slope.v[c - columns.first]; }, slope.v);
    columns.spread([&](std::int64_t c) { return gz_mean.v[c - columns.first]; }, gz_mean.v);
    input_gradient(rows, channels, relu, columns, wide, gz_mean, slope, x, gy, out.gx, out.add_gx);
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
