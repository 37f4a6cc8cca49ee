// The memory-bound operations on a device, each against a copy on the same device, and matrix products:
//   bench_device --device cuda --scale 1
// "GB/s" counts every byte that the operation must read or write once; "of copy" is that over the copy's own.
// "TFLOP/s" counts a multiplication with its addition twice. Times are the device's: what the host takes to
// queue an operation is hidden behind copies that are queued before, whose own time is taken off. Where that
// cannot be, because an operation waits for the device or the device is the host, the host's time counts too.
// Exits with 69 where there is no such device.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "autograd/moving_average.h"
#include "autograd/ops.h"
#include "autograd/optimizer.h"
#include "datasets/augment.h"
#include "kernels/conv.h"
#include "kernels/matmul.h"
#include "layers/models/zoo.h"
#include "perf/linear_workload.h"
#include "runtime/comm.h"
#include "runtime/device_memory.h"
#include "runtime/dispatch.h"
#include "runtime/flavour.h"
#include "runtime/options.h"
#include "runtime/random.h"
#include "ssn/shared_weights.h"

namespace ssn {
namespace {

constexpr int kNoDevice = 69;  // EX_UNAVAILABLE

struct Row {
  std::string name;
  double milliseconds, bytes;
  bool with_host;    // whether the host's time counts too
  double flops = 0;  // of a product
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Bench {
 public:
  Bench(Device device, double scale, int rounds)
      : device_(device),
        scale_(scale),
        rounds_(rounds),
        from_(noise({scaled(64 << 20)})),
        to_(Tensor::zeros(from_.shape(), DType::f32, device)) {}

  void run() {
    copies();
    images();
    products();
    elementwise();
    norms();
    losses();
    optimizer();
    linear_layers();
    if (scale_ < 1) return generation("wrn-16-1", "20%", 8);
    for (int templates : {4, 8}) generation("wrn-28-10", "36.2M", templates);
    for (const char* budget : {"25%", "10%", "0.5M"}) generation("wrn-28-10", budget, 8);
    generation("wrn-50-2", "25%", 8);
    generation("bert-large", "25%", 8);
  }
  const std::vector<Row>& rows() const { return rows_; }
  double copy_rate() const { return rows_.front().bytes / rows_.front().milliseconds; }

 private:
  std::int64_t scaled(std::int64_t n) const {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(n) * scale_));
  }

  Tensor noise(const Shape& shape, DType dtype = DType::f32) const {
    return uniform_noise(shape, device_, dtype);
  }

  /// Milliseconds until the host has queued `copies` copies and `calls` calls of f, and until all is done.
  struct Elapsed {
    double queued, done;
  };
  Elapsed elapsed(int copies, int calls, const std::function<void()>& f) const {
    using Clock = std::chrono::steady_clock;
    const auto wait = [&] { on_queue(device_, "bench", [](auto& q) { memory::synchronize(q); }); };
    wait();
    const Clock::time_point start = Clock::now();
    const auto since = [&] {
      return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    };
    for (int i = 0; i < copies; ++i) to_.copy_from(from_);
    for (int i = 0; i < calls; ++i) f();
    const double queued = since();
    wait();
    return {queued, since()};
  }

  /// The device's time of f; nothing if `copies` copies do not last as long as queueing it takes.
  std::optional<double> hidden_time(int copies, const std::function<void()>& f) const {
    constexpr int kCalls = 4;
    std::vector<double> without, with, queued;
    for (int i = 0; i < rounds_; ++i) {
      without.push_back(elapsed(copies, 0, f).done);
      const Elapsed e = elapsed(copies, kCalls, f);
      with.push_back(e.done), queued.push_back(e.queued);
    }
    const double own = median(with) - median(without);
    if (median(queued) >= median(without) || own <= 0) return {};
    return own / kCalls;
  }

  void time(const std::string& name, double bytes, const std::function<void()>& f) {
    constexpr int kMost = build::cuda_on_host ? 4 : 256;  // of copies
    elapsed(0, 2, f);                                     // to warm up
    std::optional<double> milliseconds;
    for (int copies = 4; device_ == Device::cuda && copies <= kMost && !milliseconds; copies *= 4)
      milliseconds = hidden_time(copies, f);
    const bool with_host = !milliseconds;
    if (with_host) {
      std::vector<double> times;
      for (int i = 0; i < rounds_; ++i) times.push_back(elapsed(0, 1, f).done);
      milliseconds = median(times);
    }
    rows_.push_back({name, *milliseconds, bytes, with_host});
  }

  void copies() {
    time("copy", 2.0 * static_cast<double>(from_.bytes()), [&] { to_.copy_from(from_); });
  }

  /// As they come from files, cut to one size.
  void images() {
    const std::int64_t n = scaled(256);
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(n));
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor x = Tensor::full({n, 224, 224, 3}, 100, DType::u8, device_),
                 samples = Tensor::of<std::int32_t>({n}, numbers).to(device_);
    const ImageTransform transform =
        ImageTransform(224, 224, 3, {.flip = true, .crop_padding = 4, .cutout = 16}, {}).to(device_);
    time("augment", 5 * static_cast<double>(x.size()), [&] {
      transform.apply(x, samples, {1, "bench_device"});
    });
  }

  /// A GPU then has tf32 too.
  bool takes_bf16() const {
    return on_queue(device_, "bench_device", [](auto& q) { return kernels::conv_takes_bf16(q); });
  }

  /// A transformer's wide layer.
  void products() {
    const std::int64_t rows = scaled(1 << 13);
    if (takes_bf16()) product<bf16>("bf16", rows);
    product<float>("f32", rows);
    if constexpr (build::has_cuda) {
      if (device_ != Device::cuda || !takes_bf16()) return;
      cuda_queue().tf32 = true;
      product<float>("tf32", rows);
      cuda_queue().tf32 = false;
    }
  }
  template <class T>
  void product(const char* precision, std::int64_t rows) {
    const std::int64_t in = scaled(1024), out = scaled(4096);
    const DType dtype = dtype_of<T>;
    const Tensor x = noise({rows, in}, dtype), w = noise({out, in}, dtype),
                 y = Tensor::empty({rows, out}, dtype, device_);
    const kernels::Matmul<T> p{
        {false, true, rows, out, in}, x.data<T>(), w.data<T>(), nullptr, y.data<T>(), false};
    on_queue(device_, "bench", [&](auto& q) {
      const Storage workspace = Storage::allocate(device_, kernels::matmul_workspace(q, p));
      time(fmt::format("matrix product {}x{}x{} in {}", rows, in, out, precision),
           static_cast<double>(x.bytes() + w.bytes() + y.bytes()),
           [&] { kernels::matmul(q, p, workspace.data()); });
    });
    rows_.back().flops = 2.0 * static_cast<double>(rows * in * out);
  }

  void elementwise() {
    const std::int64_t rows = scaled(1 << 18), cols = 128;
    const double n = static_cast<double>(rows * cols);
    const Tensor x = noise({rows, cols}), gy = noise({rows, cols}), b = noise({cols});
    const NoGrad no_grad;
    time("add", 12 * n, [&] { add(Var::constant(x), Var::constant(gy)); });
    time("relu", 8 * n, [&] { relu(Var::constant(x)); });
    time("bias_add", 8 * n, [&] { bias_add(Var::constant(x), Var::constant(b)); });
  }

  void norms() {
    const std::int64_t rows = scaled(1 << 18), cols = 128;
    const double n = static_cast<double>(rows * cols);
    const Tensor x = noise({rows, cols}), gy = noise({rows, cols}), gain = noise({cols}),
                 bias = noise({cols});
    const Tensor mean = Tensor::zeros({cols}, DType::f32, device_),
                 var = Tensor::full({cols}, 1, DType::f32, device_);
    const auto forward = [&] {
      return batch_norm(Var::leaf(x), Var::leaf(gain), Var::leaf(bias), mean, var,
                        {.activation = Activation::relu});
    };
    time("batch_norm + relu forward", 12 * n, [&] { forward(); });
    time("batch_norm + relu forward and backward", 12 * n + 20 * n, [&] {
      const Var y = forward();
      backward({&y, 1}, {&gy, 1});
    });
  }

  void losses() {
    const std::int64_t rows = scaled(1 << 16), classes = 1000;
    const double n = static_cast<double>(rows * classes);
    const Tensor x = noise({rows, classes}), labels = Tensor::zeros({rows}, DType::i32, device_);
    time("cross_entropy forward and backward", 8 * n + 8 * n,
         [&] { backward(cross_entropy(Var::leaf(x), labels, 0.1, 1.0)); });
  }

  void optimizer() {
    const std::int64_t n = scaled(36 << 20);
    Parameters parameters(DType::f32, device_);
    parameters.add("group0", {n}, Section::group, true, [](std::int64_t) { return 0.1; });
    parameters.build();
    const double array = 4 * static_cast<double>(n);
    const std::pair<OptimizerKind, int> reads_and_writes[] = {{OptimizerKind::sgd, 5},
                                                              {OptimizerKind::adamw, 7},
                                                              {OptimizerKind::lamb, 10},
                                                              {OptimizerKind::rmsprop, 7}};
    for (const auto& [kind, arrays] : reads_and_writes) {
      const auto optimizer = make_optimizer(usual_options(kind), parameters);
      time(std::string(name_of(kind)), arrays * array, [&] { optimizer->step(parameters, 1e-3); });
    }
    time("gradient norm", array, [&] { gradient_norm(parameters); });
    MovingAverage average(0.999, parameters);
    const auto optimizer = make_optimizer({}, parameters);
    time("moving average", 3 * array, [&] { average.update(parameters, *optimizer); });
  }

  /// With few rows, the weight generated first and within the product; of bytes, what must be read of theta.
  void linear_layers() {
    const NoGrad no_grad;
    const Var theta = Var::constant(noise({scaled(64 << 20)}));
    const std::int64_t width = scale_ < 1 ? 32 : 1024;
    const std::vector<std::int64_t> numbers =
        scale_ < 1 ? std::vector<std::int64_t>{2} : std::vector<std::int64_t>{1, 8, 16, 32, 64};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (dtype == DType::bf16 && (device_ == Device::cpu || !takes_bf16())) continue;
      for (const int templates : {0, 1, 4, 8}) {
        const LinearSize size{width, 4 * width, templates};
        LinearWorkload work(size, theta);
        const double bytes = static_cast<double>(size.in * size.out) * (templates ? 4.0 * templates : 1.0);
        for (const std::int64_t rows : numbers) {
          const Var x = Var::constant(noise({rows, size.in}, dtype));
          const auto row = [&](const char* how, auto&& f) {
            time(fmt::format("linear {}x{}x{} in {}, K={}, {}", rows, size.in, size.out, name_of(dtype),
                             templates, how),
                 bytes, f);
          };
          row("generated first", [&] { work.generated_first(x); });
          row("fused", [&] { work.fused(x); });
        }
      }
    }
  }

  /// A network's weights from one group, in one call each way: as theta has them, and as cuDNN and cuBLASLt
  /// read them beside bf16 activations.
  void generation(const std::string& model, const std::string& budget, int templates) {
    Parameters parameters(DType::f32, device_);
    SharedWeights weights(
        parameters, {.budget = Budget::parse(budget), .combine = Combine::wavg, .templates = templates});
    NetworkTask task{3, 32, 32, 10};
    if (model.starts_with("bert")) task = {.length = 512, .vocabulary = 30'522};
    make_network(model, task, {weights, parameters});
    weights.build();
    parameters.build();
    const Plan& plan = weights.plan();
    std::vector<WeightRecipe> recipes;
    for (const PlannedLayer& layer : plan.layers) {
      WeightRecipe r;
      r.rule.shape = layer.shape;
      r.rule.offsets = layer.offsets;
      r.rule.window = plan.options.window;
      r.theta = parameters.entry("group0").leaf;
      if (layer.method == Method::templates) {
        r.rule.method = WeightRule::Method::templates;
        r.coefficients = parameters.entry(layer.name + ".alpha").leaf;
      } else if (layer.method == Method::upsample) {
        r.rule.method = WeightRule::Method::tiles;
        r.coefficients = parameters.entry("group0.mask").leaf;
      }
      recipes.push_back(r);
    }
    const std::string what = fmt::format("{} from {}, K={}", model, plan.budget, templates);
    generation(what, recipes, {});
    generation(what + ", bf16", recipes, {.half = true, .channels_last = true});
  }
  /// Weights in a format, and their gradients in its order.
  void generation(const std::string& what, std::vector<WeightRecipe> recipes, const WeightFormat& format) {
    std::vector<Tensor> grads;
    double forward_bytes = 0, backward_bytes = 0;
    for (WeightRecipe& r : recipes) {
      r.format = format;
      grads.push_back(Tensor::full(shape_in(format, r.rule.shape), 0.01, DType::f32, device_));
      const auto n = static_cast<double>(r.rule.shape.size());
      if (format != WeightFormat() || r.rule.method != WeightRule::Method::exact)  // else a view of theta
        forward_bytes += (format.half ? 2.0 : 4.0) * n;
      backward_bytes += 4.0 * n;
    }
    // Theta is read once at least; its gradient read and written.
    const auto group = 4.0 * static_cast<double>(recipes.front().theta.size());
    time("generate " + what, forward_bytes + group, [&] { generate(recipes); });
    time("generate_backward " + what, backward_bytes + 3 * group, [&] { generate_backward(recipes, grads); });
  }

  Device device_;
  double scale_;
  int rounds_;
  Tensor from_, to_;  // of copies
  std::vector<Row> rows_;
};

int run(const std::vector<std::string>& arguments) {
  std::string device = "cuda";
  double scale = 1;
  std::int64_t rounds = 20;
  bool json = false;
  Options options("bench_device",
                  "Times the memory-bound operations on a device beside a copy, and matrix products.");
  options.add("device", device, "NAME", "where", {"cpu", "cuda"})
      .add("scale", scale, "X", "of all sizes; below 1 for a quick look", above(0))
      .add("rounds", rounds, "N", "repetitions; the median counts", at_least(1))
      .add("json", json, "print one JSON object");
  if (!options.parse(arguments)) return fmt::print("{}", options.help()), 0;
  const Device where = device == "cpu" ? Device::cpu : Device::cuda;
  if (!available(where)) {
    fmt::print(stderr, "bench_device: there is no {} device here, or this build has no CUDA\n", device);
    return kNoDevice;
  }
  Bench bench(where, scale, static_cast<int>(rounds));
  bench.run();
  nlohmann::ordered_json result = nlohmann::ordered_json::array();
  for (const Row& r : bench.rows()) {
    const double rate = r.bytes / r.milliseconds;
    result.push_back({{"name", r.name},
                      {"milliseconds", r.milliseconds},
                      {"bytes", r.bytes},
                      {"with_host", r.with_host},
                      {"of_copy", rate / bench.copy_rate()}});
    const double teraflops = r.flops / r.milliseconds / 1e9;
    if (r.flops > 0) result.back()["teraflops"] = teraflops;
    if (json) continue;
    fmt::print("{:<58} {:>9.3f} ms {:>8.1f} GB/s {:>5.2f} of copy", r.name, r.milliseconds, rate / 1e6,
               rate / bench.copy_rate());
    fmt::print("{}{}\n", r.flops > 0 ? fmt::format(" {:>8.2f} TFLOP/s", teraflops) : "",
               r.with_host && where == Device::cuda ? " (with the host's time)" : "");
  }
  if (json) fmt::print("{}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  return ssn::run_ranks([&](ssn::Comm&) { return ssn::run({argv + 1, argv + argc}); });
}
