// Training steps of a network on random images or text, and where their time goes:
//   bench_step --model wrn-16-2 --batch 64 --budget dense --threads 2
//   bench_step --model bert-2-768 --batch 8 --length 128 --vocabulary 30522
//   bench_step --model wrn-28-10 --batch 128 --device cuda --precision bf16 --graph off
// Prints one JSON object: milliseconds of every step, how many of them the host was busy (on a GPU it only
// queues the work, and a step ends by waiting for that), steps that were recorded before and repeated (the
// third is recorded), the most memory that tensors took, and milliseconds by span (an operation, self time)
// in a traced repetition. Exits with 69 where there is no such device.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "autograd/optimizer.h"
#include "layers/models/outline.h"
#include "runtime/comm.h"
#include "runtime/device_memory.h"
#include "runtime/dispatch.h"
#include "runtime/options.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "runtime/trace.h"
#include "ssn/shared_weights.h"
#include "tools/training/recorder.h"
#include "tools/training/task.h"

namespace ssn {
namespace {

constexpr int kNoDevice = 69;  // EX_UNAVAILABLE

struct Settings {
  std::string model = "wrn-16-2", budget = "dense", weights = "eager", precision = "f32", device = "cpu",
              graph = "on";
  std::int64_t batch = 64, size = 32, classes = 100, length = 0, vocabulary = 30522;
  std::int64_t threads = 2, warmup = 3, steps = 20;

  NetworkTask task() const {
    if (length > 0) return {.length = length, .vocabulary = vocabulary};
    return {.channels = 3, .height = size, .width = size, .classes = classes};
  }
};

Settings parse(const std::vector<std::string>& arguments) {
  Settings s;
  Options options("bench_step", "Times training steps on random images or text.");
  options.add("model", s.model, "NAME", "network")
      .add("budget", s.budget, "SIZE", "parameters of the group, or dense")
      .add("weights", s.weights, "POLICY", "what is kept of generated weights", {"eager", "lean"})
      .add("precision", s.precision, "TYPE", "of activations; tf32: of a GPU's products",
           {"f32", "tf32", "bf16"})
      .add("device", s.device, "NAME", "where", {"cpu", "cuda"})
      .add("graph", s.graph, "WHEN", "on a GPU: steps are recorded once and repeated, as ssn train does",
           {"on", "off"})
      .add("batch", s.batch, "N", "samples a step", at_least(1))
      .add("size", s.size, "PIXELS", "height and width", at_least(1))
      .add("classes", s.classes, "N", "classes", at_least(2))
      .add("length", s.length, "N", "tokens of a sample; 0: images", at_least(0))
      .add("vocabulary", s.vocabulary, "N", "different tokens", at_least(2))
      .add("threads", s.threads, "N", "threads", at_least(1))
      .add("warmup", s.warmup, "N", "steps before the clock starts", at_least(0))
      .add("steps", s.steps, "N", "steps timed, and again traced", at_least(1));
  if (!options.parse(arguments)) {
    fmt::print("{}", options.help());
    std::exit(0);
  }
  return s;
}

Device device_of(const Settings& s) {
  return s.device == name_of(Device::cuda) ? Device::cuda : Device::cpu;
}

class Training {
 public:
  explicit Training(const Settings& s)
      : parameters_(DType::f32, device_of(s)),
        weights_(parameters_, {.budget = Budget::parse(s.budget)}, value_named<WeightPolicy>(s.weights)),
        network_(make_network(s.model, s.task(), {weights_, parameters_})),
        half_(s.precision == "bf16") {
    weights_.build();
    parameters_.build();
    optimizer_ = make_optimizer({}, parameters_);
    const Random random(1, "bench_step");
    std::uint64_t draw = 0;
    const auto fill = [&](const Tensor& t, std::int64_t below) {
      for (std::int32_t& v : t.span<std::int32_t>())
        v = static_cast<std::int32_t>(random.below(below, draw++));
    };
    const NetworkInput input = zeros_for(s.task(), s.batch);
    Tensor labels;
    if (s.length > 0) {
      fill(input.tokens, s.vocabulary);
      labels = Tensor::empty(input.predicted.shape(), DType::i32);
      fill(labels, s.vocabulary);
    } else {
      for (float& v : input.images.span<float>()) v = static_cast<float>(random.normal(draw++));
      labels = Tensor::empty({s.batch}, DType::i32);
      fill(labels, s.classes);
    }
    const Device device = parameters_.device();
    const NetworkInput there = moved(input, device);
    batch_ = {.images = there.images,
              .tokens = there.tokens,
              .lengths = there.lengths,
              .predicted = there.predicted,
              .labels = labels.to(device),
              .global_size = labels.size()};
    if (records_steps({.graph = s.graph}, device, true)) recorder_.emplace(alone_, 1);
  }

  void step() {
    const Span span("step");
    ++steps_;
    if (recorder_) {
      recorder_->begin_step(steps_);
      recorder_->prepare(0, batch_);
      parameters_.values_changed();  // what is recorded of a step generates its own weights
    }
    const auto work = [&](const Batch& batch) { return pass(batch); };
    recorder_ ? recorder_->part(0, batch_, work) : work(batch_);
    const Span optimizer("optimizer");
    optimizer_->begin_step(0.01);
    const auto update = [&] { optimizer_->apply(parameters_); };
    recorder_ ? recorder_->update(update) : update();
    parameters_.values_changed();  // also by what was recorded
  }

  const Plan& plan() const { return weights_.plan(); }
  std::int64_t replayed() const { return recorder_ ? recorder_->replayed() : 0; }

 private:
  /// Forward and backward.
  Given pass(const Batch& batch) {
    parameters_.zero_gradients();
    const Var logits = network_->forward(network_input(batch, parameters_.device()),
                                         {.training = true,
                                          .step = steps_,
                                          .device_step = recorder_ ? recorder_->step() : nullptr,
                                          .half = half_});
    const Var loss = cross_entropy(logits, batch.labels, 0, 1.0 / static_cast<double>(batch.global_size));
    backward(loss);
    weights_.finish_backward();
    return {.loss = loss.value(), .batch = batch.global_size};
  }

  Parameters parameters_;
  SharedWeights weights_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Optimizer> optimizer_;
  Batch batch_;
  bool half_;
  std::int64_t steps_ = 0;
  SoloComm alone_;
  std::optional<Recorder> recorder_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Milliseconds by span, less what the spans within took: medians over the spans named "step".
nlohmann::json self_times(const Trace& trace) {
  std::map<std::string, std::vector<double>> times;
  std::vector<const TraceEvent*> open;
  std::size_t steps = 0;
  for (const TraceEvent& e : trace.events) {
    const double length = static_cast<double>(e.end - e.begin) / 1e6;
    while (!open.empty() && open.back()->end <= e.begin) open.pop_back();
    steps += std::string_view(e.name) == "step";
    times[e.name].resize(steps);
    if (!open.empty()) times[open.back()->name].back() -= length;
    times[e.name].back() += length;
    open.push_back(&e);
  }
  nlohmann::json result;
  for (auto& [name, values] : times) {
    values.resize(steps);
    result[name] = std::round(1e3 * median(values)) / 1e3;
  }
  return result;
}

struct Times {
  std::vector<double> step, host;  // milliseconds
};

/// Adds a step's, which ends when the device has done it.
void time_step(Training& training, Device device, Times& times) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const Clock::time_point start = Clock::now();
  training.step();
  times.host.push_back(since(start));
  on_queue(device, "bench_step", [](auto& q) { memory::synchronize(q); });
  times.step.push_back(since(start));
}

int run(const Settings& s) {
  const Device device = device_of(s);
  if (!available(device)) {
    fmt::print(stderr, "bench_step: there is no {} device here, or this build has no CUDA\n", s.device);
    return kNoDevice;
  }
  if constexpr (build::has_cuda)
    if (device == Device::cuda) cuda_queue().tf32 = s.precision == "tf32";
  set_num_threads(static_cast<int>(s.threads));
  Training training(s);
  Times warmup, times, recorded;
  for (std::int64_t i = 0; i < s.warmup; ++i) time_step(training, device, warmup);
  Trace trace;
  for (std::int64_t i = 0; i < s.steps; ++i) {
    time_step(training, device, times);
    start_trace();
    time_step(training, device, recorded);
    const Trace step = stop_trace();
    trace.events.insert(trace.events.end(), step.events.begin(), step.events.end());
  }
  nlohmann::ordered_json result = {{"program", "shapeshifter"},
                                   {"model", s.model},
                                   {"batch", s.batch},
                                   {"threads", s.threads},
                                   {"budget", s.budget},
                                   {"precision", s.precision},
                                   {"parameters", training.plan().total},
                                   {"device", s.device},
                                   {"replayed_steps", training.replayed()},
                                   {"peak_bytes", pool_stats(device).peak},
                                   {"step_ms", times.step},
                                   {"host_ms", times.host},
                                   {"traced_step_ms", recorded.step},
                                   {"span_ms", self_times(trace)}};
  fmt::print("{}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  ssn::SoloComm comm;
  return ssn::run_ranks(comm, [&] { return ssn::run(ssn::parse({argv + 1, argv + argc})); });
}
