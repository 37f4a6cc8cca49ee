#include "tests/cuda_on_host/cudnn_engines.h"

#include <bit>
#include <cstring>

#include "runtime/bf16.h"

namespace cuda_on_host {
namespace {

bool is_half(const Convolution& c) {
  return c.x.type == CUDNN_DATA_BFLOAT16;
}

/// To 10 bits of mantissa, to the nearest, ties away from zero.
float to_tf32(float v) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(v) + 0x1000u) & 0xFFFFE000u);
}

/// A tensor's elements as the engine takes them.
std::vector<double> read(Engine engine, const ConvTensor& t, const void* data) {
  static unsigned calls = 0;
  std::vector<double> values(static_cast<std::size_t>(t.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float v = t.type == CUDNN_DATA_FLOAT ? static_cast<const float*>(data)[i]
                                         : static_cast<float>(static_cast<const ssn::bf16*>(data)[i]);
    if (engine == Engine::tensor_core) v = to_tf32(v);
    if (engine == Engine::down_converting) v = ssn::bf16(v);
    if (engine == Engine::nondeterministic) v *= 1 + 1e-3f * static_cast<float>(++calls % 7);
    values[i] = v;
  }
  return values;
}

void write(const ConvTensor& t, const std::vector<double>& values, const void* to) {
  void* data = const_cast<void*>(to);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto v = static_cast<float>(values[i]);
    if (t.type == CUDNN_DATA_FLOAT)
      static_cast<float*>(data)[i] = v;
    else
      static_cast<ssn::bf16*>(data)[i] = v;
  }
}

std::size_t at(const ConvTensor& t, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return static_cast<std::size_t>(n * t.strides[0] + c * t.strides[1] + h * t.strides[2] + w * t.strides[3]);
}

/// f(index in x, in the weight, in y) for each product.
template <class F>
void each_product(const Convolution& c, F&& f) {
  const auto [n, outputs, height, width] = c.y.dims;
  const auto [unused, channels, taps_h, taps_w] = c.weight.dims;
  const std::int64_t group = outputs / c.groups();
  for (std::int64_t b = 0; b < n; ++b)
    for (std::int64_t o = 0; o < outputs; ++o)
      for (std::int64_t row = 0; row < height; ++row)
        for (std::int64_t col = 0; col < width; ++col)
          for (std::int64_t i = 0; i < taps_h; ++i)
            for (std::int64_t j = 0; j < taps_w; ++j) {
              const std::int64_t h = row * c.stride[0] - c.padding[0] + i * c.dilation[0];
              const std::int64_t w = col * c.stride[1] - c.padding[1] + j * c.dilation[1];
              if (h < 0 || h >= c.x.dims[2] || w < 0 || w >= c.x.dims[3]) continue;
              for (std::int64_t k = 0; k < channels; ++k)
                f(at(c.x, b, o / group * channels + k, h, w), at(c.weight, o, k, i, j),
                  at(c.y, b, o, row, col));
            }
}

}  // namespace

std::vector<Engine> engines_for(const Convolution& c, cudnnBackendHeurMode_t mode) {
  if (c.groups() > 1 && (c.dilation[0] > 1 || c.dilation[1] > 1)) return {};
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {Engine::exact};
  if (is_half(c)) return {Engine::nondeterministic, Engine::hungry, Engine::broken, Engine::tensor_core};
  return {Engine::nondeterministic, Engine::down_converting, Engine::hungry, Engine::broken,
          Engine::tensor_core};
}

std::vector<cudnnBackendNumericalNote_t> notes_of(Engine engine) {
  switch (engine) {
    case Engine::nondeterministic: return {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case Engine::down_converting:
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
    case Engine::tensor_core: return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    case Engine::hungry:
    case Engine::broken:
    case Engine::exact: break;
  }
  return {};
}

std::size_t workspace_of(Engine engine, const Convolution& c) {
  if (engine == Engine::hungry) return std::size_t{1} << 40;
  return 100 + c.y.bytes() / 2;
}

void compute(Engine engine, const Convolution& c, const void* x, const void* weight, const void* y,
             void* workspace) {
  std::memset(workspace, 0xFF, workspace_of(engine, c));
  const auto out_x = c.pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  const auto out_w = c.pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  const auto values = [&](const ConvTensor& t, const void* data, bool out) {
    return out ? std::vector<double>(static_cast<std::size_t>(t.size())) : read(engine, t, data);
  };
  std::vector<double> xs = values(c.x, x, out_x), ws = values(c.weight, weight, out_w),
                      ys = values(c.y, y, !out_x && !out_w);
  each_product(c, [&](std::size_t i, std::size_t j, std::size_t k) {
    if (out_x)
      xs[i] += ws[j] * ys[k];
    else if (out_w)
      ws[j] += xs[i] * ys[k];
    else
      ys[k] += xs[i] * ws[j];
  });
  if (out_x)
    write(c.x, xs, x);
  else if (out_w)
    write(c.weight, ws, weight);
  else
    write(c.y, ys, y);
}

}  // namespace cuda_on_host
