// Kernels by themselves, on the CPU: time, and floating point operations a second (twice the multiply-adds).
//   bench_kernels --benchmark_filter='conv.*wrn_16_2'
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <functional>

#include "kernels/conv.h"
#include "kernels/matmul.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace ssn {
namespace {

Tensor noise(const Shape& shape) {
  const Random random(1, static_cast<std::uint64_t>(shape.size()));
  const Tensor t = Tensor::empty(shape, DType::f32);
  std::uint64_t i = 0;
  for (float& v : t.span<float>()) v = static_cast<float>(random.normal(i++));
  return t;
}

void report(benchmark::State& state, double flop) {
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
}

using Pass = kernels::ConvPass;

void convolution(benchmark::State& state, const kernels::ConvGeometry& g, Pass pass) {
  CpuQueue& q = cpu_queue();
  const Tensor x = noise({g.n, g.h, g.w, g.c}), y = noise({g.n, g.out_h(), g.out_w(), g.o});
  const Tensor w = noise({g.o, g.c / g.groups, g.kh, g.kw});
  float *px = x.data<float>(), *py = y.data<float>(), *pw = w.data<float>();
  const Storage workspace = Storage::allocate(Device::cpu, kernels::conv_workspace<float>(q, g, pass));
  for (auto _ : state) {
    if (pass == Pass::forward) kernels::conv_forward<float>(q, g, px, pw, py, workspace.data());
    if (pass == Pass::data) kernels::conv_backward_data<float>(q, g, py, pw, px, workspace.data());
    if (pass == Pass::weight) kernels::conv_backward_weight<float>(q, g, px, py, pw, workspace.data());
  }
  report(state, 2.0 * static_cast<double>(y.size() * w.size()) / static_cast<double>(g.o));
}

void matrix_product(benchmark::State& state, bool ta, bool tb, std::int64_t m, std::int64_t n,
                    std::int64_t k) {
  const Tensor a = noise({m, k}), b = noise({k, n}), c = noise({m, n});
  const kernels::Matmul<float> product{{ta, tb, m, n, k}, a.data<float>(), b.data<float>(),
                                       nullptr,           c.data<float>(), false};
  const Storage workspace = Storage::allocate(Device::cpu, kernels::matmul_workspace(cpu_queue(), product));
  for (auto _ : state) kernels::matmul(cpu_queue(), product, workspace.data());
  report(state, 2.0 * static_cast<double>(m * n * k));
}

void add_conv(const std::string& network, std::int64_t n, std::int64_t c, std::int64_t o, std::int64_t size,
              std::int64_t kernel, std::int64_t stride, std::int64_t groups = 1) {
  const kernels::ConvGeometry g{.n = n,
                                .h = size,
                                .w = size,
                                .c = c,
                                .o = o,
                                .kh = kernel,
                                .kw = kernel,
                                .stride = {stride, stride},
                                .padding = {kernel / 2, kernel / 2},
                                .groups = groups};
  for (const auto& [name, pass] :
       {std::pair{"forward", Pass::forward}, {"data", Pass::data}, {"weight", Pass::weight}})
    benchmark::RegisterBenchmark(
        fmt::format("conv_{}/{}/{}x{}x{}x{}_o{}_k{}_s{}", name, network, n, size, size, c, o, kernel, stride)
            .c_str(),
        [=, pass = pass](benchmark::State& s) { convolution(s, g, pass); })
        ->UseRealTime();
}

void add_matmul(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k) {
  benchmark::RegisterBenchmark(
      fmt::format("matmul_{}{}/{}x{}x{}", ta ? "t" : "n", tb ? "t" : "n", m, n, k).c_str(),
      [=](benchmark::State& s) { matrix_product(s, ta, tb, m, n, k); })
      ->UseRealTime();
}

/// The convolutions of a wide residual network: in each of three groups the one that widens, its shortcut,
/// and the one that repeats.
void add_wide_resnet(const std::string& name, std::int64_t batch, std::int64_t width) {
  add_conv(name, batch, 3, 16, 32, 3, 1);
  std::int64_t c = 16, size = 32;
  for (const std::int64_t o : {16 * width, 32 * width, 64 * width}) {
    const std::int64_t stride = o == 16 * width ? 1 : 2;
    add_conv(name, batch, c, o, size, 3, stride);
    add_conv(name, batch, c, o, size, 1, stride);
    size /= stride;
    add_conv(name, batch, o, o, size, 3, 1);
    c = o;
  }
}

/// The depthwise convolutions of EfficientNet-B0.
void add_efficientnet(std::int64_t batch) {
  const auto add = [=](std::int64_t c, std::int64_t size, std::int64_t kernel, std::int64_t stride) {
    add_conv("efficientnet_b0", batch, c, c, size, kernel, stride, c);
  };
  add(32, 112, 3, 1);
  add(96, 112, 3, 2);
  add(144, 56, 3, 1);
  add(144, 56, 5, 2);
  add(240, 28, 5, 1);
  add(480, 14, 3, 1);
  add(672, 14, 5, 2);
  add(1152, 7, 5, 1);
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  ssn::add_wide_resnet("wrn_16_2", 64, 2);
  ssn::add_wide_resnet("wrn_28_10", 16, 10);
  ssn::add_efficientnet(8);
  for (const auto& [o, i] :
       {std::pair{768, 768}, {3072, 768}, {768, 3072}}) {  // BERT's layers on 8 x 128 tokens
    ssn::add_matmul(false, true, 1024, o, i);              // y = x wᵀ
    ssn::add_matmul(false, false, 1024, i, o);             // gx = gy w
    ssn::add_matmul(true, false, o, i, 1024);              // gw = gyᵀ x
  }
  ssn::add_matmul(false, true, 64, 100, 128);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
