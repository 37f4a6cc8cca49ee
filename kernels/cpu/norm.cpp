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
template <class X, class T>
[[gnu::noinline]] SSN_CLONES void add_squares(const X* x, int n, const Wide<T>& mean, Wide<T>& squares) {
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    const T d = x[i] - mean.v[i];
    squares.v[i] += d * d;
  }
}

/// sum[i] += gz and dot[i] += gz · (x[i] − mean[i]), i < n
template <Activation kActivation, class X, class T>
[[gnu::noinline]] SSN_CLONES void add_gradients(const X* x, const X* gy, int n, std::int64_t ahead,
                                                const Channels<T>& channels, Wide<T>& sum, Wide<T>& dot) {
  const auto add = [&](int begin, int end) {
#pragma omp simd
    for (int i = begin; i < end; ++i) {
      const T mean = channels.mean.v[i];
      const T value = x[i], g = gy[i];
      const T z = normalise(value, mean, channels.scale.v[i], channels.bias.v[i]);
      const T gz = activation_gradient<kActivation>(z, g);
      sum.v[i] += gz;
      dot.v[i] = std::fma(gz, value - mean, dot.v[i]);
    }
  };
  in_strips(n, ahead, add, x, gy);
}

/// y[i] = activation(z), i < n
template <Activation kActivation, class X, class T>
SSN_CLONES void normalise_step(const X* x, int n, const Channels<T>& channels, X* y) {
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    const T z = normalise(static_cast<T>(x[i]), channels.mean.v[i], channels.scale.v[i], channels.bias.v[i]);
    store(y[i], activate<kActivation>(z));
  }
}

/// What the statistics carry of a channel's gradient: see normalise_gradient().
template <class T>
struct Carried {
  Wide<T> gz_mean, slope;
};

/// gx[i] = or += its gradient, i < n
template <Activation kActivation, bool kAdd, class X, class T>
SSN_CLONES void gradient_step(const X* x, const X* gy, int n, const Channels<T>& channels,
                              const Carried<T>& carried, X* gx) {
#pragma omp simd
  for (int i = 0; i < n; ++i) {
    const T mean = channels.mean.v[i], scale = channels.scale.v[i], value = x[i], g = gy[i];
    const T gz = activation_gradient<kActivation>(normalise(value, mean, scale, channels.bias.v[i]), g);
    const T result = normalise_gradient(gz, carried.gz_mean.v[i], value - mean, carried.slope.v[i], scale);
    store(gx[i], kAdd ? static_cast<T>(gx[i]) + result : result);
  }
}

/// f with the truth value as a constant.
template <class F>
void with_constant(bool value, F&& f) {
  value ? f(std::true_type{}) : f(std::false_type{});
}

/// A matrix whose rows may lie apart, by steps over the dense matrix of its shape. A step is a part of a row,
/// or whole rows.
template <class T>
struct Rows {
  T* data;
  std::int64_t channels, stride;

  bool dense() const { return stride == channels; }
  /// f(where a piece of the step lies, its place in the step, its length)
  template <class F>
  void pieces(std::int64_t at, int n, F&& f) const {
    T* row = data + at / channels * stride + at % channels;
    const int length = static_cast<int>(std::min<std::int64_t>(n, channels));
    for (int i = 0; i < n; i += length, row += stride) f(row, i, length);
  }
  /// A step's elements in one piece: where they lie, else in the buffer.
  const T* gathered(std::int64_t at, int n, std::remove_const_t<T>* buffer) const {
    if (dense()) return data + at;
    pieces(at, n, [&](const T* from, int i, int length) { std::copy_n(from, length, buffer + i); });
    return buffer;
  }
  /// Where to write them; scatter() then moves them where they belong.
  T* place(std::int64_t at, T* buffer) const { return dense() ? data + at : buffer; }
  void scatter(std::int64_t at, int n, const T* buffer) const {
    if (!dense()) pieces(at, n, [&](T* to, int i, int length) { std::copy_n(buffer + i, length, to); });
  }
};
}  // namespace

namespace {
/// A chunk's mean and Σ (x − mean)² of each column, in two passes.
template <class X, class T>
void chunk_statistics(const Columns& columns, std::int64_t begin, std::int64_t end, const X* x, T* mean,
                      T* squares) {
  Wide<T> sums{}, means;
  columns.steps(begin, end, [&](std::int64_t at, int n) { add_step(x + at, n, columns.ahead<X>(), sums.v); });
  columns.gather(sums.v, mean);
  for (int c = 0; c < columns.count; ++c) mean[c] /= static_cast<T>(end - begin);
  columns.spread([&](std::int64_t c) { return mean[c - columns.first]; }, means.v);
  sums = {};
  columns.steps(begin, end, [&](std::int64_t at, int n) { add_squares(x + at, n, means, sums); });
  columns.gather(sums.v, squares);
}
}  // namespace

template <class X>
void batch_norm_statistics(CpuQueue&, std::int64_t rows, std::int64_t channels, const X* x, Wider<X>* mean,
                           Wider<X>* var, Wider<X>* workspace) {
  using T = Wider<X>;
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

template <class X>
void batch_norm_forward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps,
                        Activation activation, const X* x, const Wider<X>* mean, const Wider<X>* var,
                        const Wider<X>* gain, const Wider<X>* bias, X* y, std::int64_t stride) {
  using T = Wider<X>;
  const Chunks chunks(rows, channels);
  const Rows<X> out{y, channels, stride};
  for_columns(channels, [&](const Columns& columns) {
    const Channels<T> wide(columns, eps, mean, var, gain, bias);
    with_activation(activation, [&](auto act) {
      for_chunks(chunks, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        Wide<X> buffer;
        columns.steps(begin, end, [&](std::int64_t at, int n) {
          normalise_step<act.value>(x + at, n, wide, out.place(at, buffer.v));
          out.scatter(at, n, buffer.v);
        });
      });
    });
  });
}

namespace {
/// The sums of one backward pass over the chunks: workspace gets, a chunk, Σ gz and Σ gz (x − mean).
template <class X, class T>
void gradient_sums(const Chunks& chunks, Activation activation, const Columns& columns,
                   const Channels<T>& wide, const X* x, const Rows<const X>& gy, T* workspace) {
  with_activation(activation, [&](auto act) {
    for_chunks(chunks, false, [&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      Wide<T> sum{}, dot{};
      Wide<X> buffer;
      columns.steps(begin, end, [&](std::int64_t at, int n) {
        add_gradients<act.value>(x + at, gy.gathered(at, n, buffer.v), n, columns.ahead<X>(), wide, sum, dot);
      });
      columns.gather(sum.v, workspace + 2 * chunk * gy.channels + columns.first);
      columns.gather(dot.v, workspace + (2 * chunk + 1) * gy.channels + columns.first);
    });
  });
}

/// gx, from what each channel's statistics carry.
template <class X, class T>
void input_gradient(const Chunks& chunks, Activation activation, const Columns& columns,
                    const Channels<T>& wide, const Carried<T>& carried, const X* x, const Rows<const X>& gy,
                    X* gx, bool add) {
  const auto run = [&](auto act, auto adds) {
    for_chunks(chunks, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
      Wide<X> buffer;
      columns.steps(begin, end, [&](std::int64_t at, int n) {
        gradient_step<act.value, adds.value>(x + at, gy.gathered(at, n, buffer.v), n, wide, carried, gx + at);
      });
    });
  };
  with_activation(activation, [&](auto act) { with_constant(add, [&](auto adds) { run(act, adds); }); });
}
}  // namespace

template <class X>
void batch_norm_backward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps,
                         Activation activation, bool batch_statistics, const X* x, const Wider<X>* mean,
                         const Wider<X>* var, const Wider<X>* gain, const Wider<X>* bias, const X* gy,
                         std::int64_t stride, const NormGradients<X>& out, Wider<X>* workspace) {
  using T = Wider<X>;
  const Chunks chunks(rows, channels);
  const Rows<const X> gys{gy, channels, stride};
  for_columns(channels, [&](const Columns& columns) {
    const Channels<T> wide(columns, eps, mean, var, gain, bias);
    gradient_sums(chunks, activation, columns, wide, x, gys, workspace);
    double sum[Columns::kWidth] = {}, dot[Columns::kWidth] = {};
    add_chunks(chunks.count, 2 * channels, workspace + columns.first, columns.count, sum);
    add_chunks(chunks.count, 2 * channels, workspace + channels + columns.first, columns.count, dot);
    Carried<T> carried;
    for (int i = 0; i < columns.count; ++i) {
      const std::int64_t c = columns.first + i;
      const double n = static_cast<double>(rows), power = var[c] + eps;
      if (out.ggain) out.ggain[c] += static_cast<T>(dot[i] / std::sqrt(power));
      if (out.gbias) out.gbias[c] += static_cast<T>(sum[i]);
      carried.gz_mean.v[i] = batch_statistics ? static_cast<T>(sum[i] / n) : T(0);
      carried.slope.v[i] = batch_statistics ? static_cast<T>(-dot[i] / power / n) : T(0);
    }
    if (!out.gx) return;
    for (Wide<T>* wide_value : {&carried.gz_mean, &carried.slope})
      columns.spread([&](std::int64_t c) { return wide_value->v[c - columns.first]; }, wide_value->v);
    input_gradient(chunks, activation, columns, wide, carried, x, gys, out.gx, out.add_gx);
  });
}

template void batch_norm_statistics<bf16>(CpuQueue&, std::int64_t, std::int64_t, const bf16*, float*, float*,
                                          float*);
template void batch_norm_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, double, Activation, const bf16*,
                                       const float*, const float*, const float*, const float*, bf16*,
                                       std::int64_t);
template void batch_norm_backward<bf16>(CpuQueue&, std::int64_t, std::int64_t, double, Activation, bool,
                                        const bf16*, const float*, const float*, const float*, const float*,
                                        const bf16*, std::int64_t, const NormGradients<bf16>&, float*);
template void batch_norm_statistics<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, float*,
                                           float*, float*);
template void batch_norm_statistics<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, double*,
                                            double*, double*);
template void batch_norm_update<float>(CpuQueue&, std::int64_t, std::int64_t, double, const float*,
                                       const float*, float*, float*);
template void batch_norm_update<double>(CpuQueue&, std::int64_t, std::int64_t, double, const double*,
                                        const double*, double*, double*);
template void batch_norm_forward<float>(CpuQueue&, std::int64_t, std::int64_t, double, Activation,
                                        const float*, const float*, const float*, const float*, const float*,
                                        float*, std::int64_t);
template void batch_norm_forward<double>(CpuQueue&, std::int64_t, std::int64_t, double, Activation,
                                         const double*, const double*, const double*, const double*,
                                         const double*, double*, std::int64_t);
template void batch_norm_backward<float>(CpuQueue&, std::int64_t, std::int64_t, double, Activation, bool,
                                         const float*, const float*, const float*, const float*, const float*,
                                         const float*, std::int64_t, const NormGradients<float>&, float*);
template void batch_norm_backward<double>(CpuQueue&, std::int64_t, std::int64_t, double, Activation, bool,
                                          const double*, const double*, const double*, const double*,
                                          const double*, const double*, std::int64_t,
                                          const NormGradients<double>&, double*);

}  // namespace ssn::kernels
