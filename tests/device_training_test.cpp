// Training on a GPU, or on the host in its place: the losses of the CPU's, the same bits again, and files
// that either goes on from.
#include <gtest/gtest.h>

#include <map>

#include "datasets/feed.h"
#include "kernels/conv.h"
#include "layers/models/zoo.h"
#include "runtime/device_memory.h"
#include "runtime/dispatch.h"
#include "runtime/flavour.h"
#include "runtime/graph.h"
#include "runtime/staging.h"
#include "tests/cuda_on_host/schedules.h"
#include "tests/families.h"
#include "tests/small_network.h"
#include "tests/training_run.h"
#include "tools/training/trainer.h"

namespace ssn::test {
namespace {

/// Of a loss, between two ways to add the same terms: a GPU's own libraries add in their own orders.
constexpr double kRounding = build::cuda_on_host ? 1e-6 : 1e-5;

/// The sample, eight at a time.
TrainConfig sample_config() {
  TrainConfig config;
  config.batch = 8;
  config.seed = 6;
  config.epochs = 1;
  config.lr = 0.002;
  return config;
}
TrainConfig text_config() {
  TrainConfig config = sample_config();
  config.model = "bert-1-64", config.data = "synthetic-text:40", config.length = 11;
  config.optimizer = "adamw", config.lr = 0.002, config.decay = 0.01;
  return config;
}

const Dataset& dataset_of(const TrainConfig& config) {
  static std::map<std::string, Dataset> sets;
  const std::string key = fmt::format("{} {}", config.data, config.length);
  if (!sets.contains(key))
    sets.emplace(key, load_dataset(config.data, {.seed = 5, .text = {.length = config.length}}));
  return sets.at(key);
}

struct Trained {
  std::vector<double> losses;
  Tensor values;
  std::int64_t replayed = 0;  // steps
  double measured = 0;        // loss of a few test samples, where they were asked for
};
Trained trained(TrainConfig config, Device device, int steps, bool measures = false) {
  config.device = name_of(device);
  const Dataset& dataset = dataset_of(config);
  SoloComm solo;
  Model model(config, dataset.facts.input, device);
  const Recompute again = choose_recompute(config, {.input = dataset.facts.input});
  model.build(solo);
  Trainer trainer(solo, model,
                  {.config = config, .dataset = dataset, .train = dataset.train, .recompute = again});
  Trained result{trainer.run_steps(steps), {}};
  result.values = model.parameters.values().to(Device::cpu);
  result.replayed = trainer.replayed_steps();
  if (measures)
    result.measured =
        evaluate(solo, model, Loader(subset(dataset.test, {0, 1, 2}), evaluation_options(config))).loss();
  return result;
}

struct Setting {
  const char* name;
  std::function<void(TrainConfig&)> change;
  int steps = 20;
  TrainConfig base = sample_config();
};
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name;
}

std::vector<Setting> settings() {
  return {
      {"dense", [](TrainConfig& c) { c.budget = "dense"; }},
      {"shared", [](TrainConfig&) {}},
      {"own_coefficients", [](TrainConfig& c) { c.combine = "wavg", c.softmax = true; }, 3},
      {"one_template", [](TrainConfig& c) { c.combine = "rr", c.groups = 3, c.mapping = "random"; }, 3},
      {"masks", [](TrainConfig& c) { c.budget = "2%"; }},
      {"own_masks", [](TrainConfig& c) { c.budget = "2%", c.masks = "layer", c.gain = "on"; }, 3},
      {"repeated", [](TrainConfig& c) { c.budget = "2%", c.upsample = "repeat"; }, 3},
      {"resized_group", [](TrainConfig& c) { c.budget = "2%", c.upsample = "inter"; }, 3},
      {"resized_templates", [](TrainConfig& c) { c.budget = "largest", c.allocation = "resized"; }, 3},
      {"narrower", [](TrainConfig& c) { c.baseline = "reduced"; }, 2},
      {"parts", [](TrainConfig& c) { c.micro_batches = 2, c.recompute = "all", c.clip = 0.5; }, 3},
      {"shards", [](TrainConfig& c) { c.shards = 2, c.ema = 0.9, c.on_nonfinite = "skip"; }, 3},
      {"adam", [](TrainConfig& c) { c.optimizer = "adam", c.lr = 0.001, c.decay = 0.01; }, 3},
      {"lamb", [](TrainConfig& c) { c.optimizer = "lamb", c.lr = 0.005, c.epsilon = 1e-6; }, 3},
      {"rmsprop", [](TrainConfig& c) { c.optimizer = "rmsprop", c.lr = 0.016, c.epsilon = 1e-3; }, 3},
      {"text", [](TrainConfig& c) { c.budget = "30%"; }, 3, text_config()},
  };
}

class DeviceTraining : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  }
  OneThread one_thread_;
};

TEST_P(DeviceTraining, GivesTheLossesOfTheProcessor) {
  TrainConfig config = GetParam().base;
  GetParam().change(config);
  const int steps =
      build::exact_allocation ? std::min(GetParam().steps, 3) : GetParam().steps;  // or it takes long
  const Trained cpu = trained(config, Device::cpu, steps), cuda = trained(config, Device::cuda, steps);
  // An activation may be 0 but for rounding: on here and off there, as between two kinds of CPU. From then on
  // what was a rounding grows.
  EXPECT_TRUE(close(std::span(cuda.losses).first(2), std::span(cpu.losses).first(2), 10 * kRounding));
  EXPECT_TRUE(close(cuda.losses, cpu.losses, 2e-2));
  EXPECT_TRUE(close(values_of(cuda.values), values_of(cpu.values), 5e-2));
  config.weights = name_of(WeightPolicy::lean);
  const Trained lean = trained(config, Device::cuda, std::min(steps, 3));
  EXPECT_TRUE(close(lean.losses, std::span(cuda.losses).first(lean.losses.size()), kRounding));
}
INSTANTIATE_TEST_SUITE_P(Every, DeviceTraining, testing::ValuesIn(settings()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Whether the GPU has tf32 and bf16.
bool takes_fewer_bits() {
  return on_queue(Device::cuda, "precision", [](auto& q) { return kernels::conv_takes_bf16(q); });
}

/// What is computed in fewer bits follows f32, and is not the same.
TEST(DeviceTrainingPrecision, LossesFollowThoseInF32) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  if (!takes_fewer_bits()) GTEST_SKIP() << "this GPU has f32 alone";
  const OneThread one_thread;
  const int steps = build::exact_allocation ? 3 : 12;
  TrainConfig config = sample_config();
  config.budget = "dense";
  const Trained exact = trained(config, Device::cuda, steps);
  for (const auto& [precision, tolerance] : {std::pair{"tf32", 1e-2}, {"bf16", 3e-2}}) {
    config.precision = precision;
    const Trained less = trained(config, Device::cuda, steps), again = trained(config, Device::cuda, 2);
    EXPECT_TRUE(close(less.losses, exact.losses, tolerance)) << precision;
    EXPECT_NE(less.losses, exact.losses) << precision;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(again.losses[i], less.losses[i]) << precision;
    TrainConfig sparing = config;
    sparing.weights = name_of(WeightPolicy::lean), sparing.recompute = "all";
    const Trained lean = trained(sparing, Device::cuda, 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(lean.losses[i], less.losses[i]) << precision;
  }
}

/// Runs in which most steps are repeated recordings, beside those that queue each.
std::vector<Setting> recorded_settings() {
  return {
      {"dense", [](TrainConfig& c) { c.budget = "dense"; }},
      {"shared", [](TrainConfig& c) { c.schedule = "steps", c.lr_steps = "0.1,0.3", c.warmup = 0.1; }},
      {"shared_lean", [](TrainConfig& c) { c.weights = "lean", c.combine = "wavg", c.softmax = true; }, 6},
      {"masks", [](TrainConfig& c) { c.budget = "2%", c.ema = 0.9, c.clip = 0.5; }, 6},
      {"parts", [](TrainConfig& c) { c.micro_batches = 3, c.recompute = "all"; }, 6},
      {"uneven_parts", [](TrainConfig& c) { c.micro_batches = 3, c.on_nonfinite = "skip"; }, 6},
      {"halves", [](TrainConfig& c) { c.precision = "bf16", c.optimizer = "lamb", c.epsilon = 1e-6; }, 6},
      {"dropout", [](TrainConfig& c) { c.budget = "30%"; }, 20, text_config()},
  };
}

class DeviceRecording : public DeviceTraining {};

TEST_P(DeviceRecording, GivesTheSameBits) {
  TrainConfig config = GetParam().base;
  GetParam().change(config);
  if (config.precision != "f32" && !takes_fewer_bits()) GTEST_SKIP() << "this GPU has f32 alone";
  const int steps = build::exact_allocation ? std::min(GetParam().steps, 5) : GetParam().steps;
  config.graph = "off";
  const Trained queued = trained(config, Device::cuda, steps);
  EXPECT_EQ(queued.replayed, 0);
  config.graph = "on";
  const Trained recorded = trained(config, Device::cuda, steps);
  EXPECT_EQ(recorded.replayed, steps - 2);
  EXPECT_EQ(recorded.losses, queued.losses);
  EXPECT_TRUE(same_bits(recorded.values, queued.values));
}
INSTANTIATE_TEST_SUITE_P(Every, DeviceRecording, testing::ValuesIn(recorded_settings()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DeviceRecorder, QueuesBatchesOfOtherShapesAsTheyAre) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  SoloComm solo;
  Recorder recorder(solo, 1);
  std::int64_t step = 0, queued = 0;
  for (const std::int64_t samples : {2, 2, 2, 2, 3, 2, 3}) {
    const double value = 10 + static_cast<double>(step);
    const Batch batch{.images = Tensor::full({samples, 1}, value, DType::f32, Device::cuda),
                      .labels = Tensor::zeros({samples}, DType::i32, Device::cuda)};
    recorder.begin_step(step++);
    recorder.prepare(0, batch);
    const Given given = recorder.part(0, batch, [&](const Batch& b) {
      ++queued;
      return Given{b.images.clone(), b.labels.clone(), 8};
    });
    EXPECT_TRUE(same_bits(given.loss.to(Device::cpu), Tensor::full({samples, 1}, value, DType::f32))) << step;
  }
  EXPECT_EQ(queued, 2 + 1 + 2) << "the first, the one that was recorded, and those of three samples";
  EXPECT_EQ(recorder.replayed(), 3);
}

/// Texts of several lengths have now more, now fewer words to predict.
TEST(DeviceRecordingShapes, OthersAreQueuedAsTheyAre) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  const OneThread one_thread;
  TrainConfig config = text_config();
  config.data = "synthetic-text:41", config.length = 12, config.batch = 2, config.micro_batches = 2;
  const int steps = build::exact_allocation ? 8 : 16;
  const Trained recorded = trained(config, Device::cuda, steps, true);
  config.graph = "off";
  const Trained queued = trained(config, Device::cuda, steps, true);
  EXPECT_EQ(recorded.losses, queued.losses);
  EXPECT_EQ(recorded.measured, queued.measured);
  EXPECT_TRUE(same_bits(recorded.values, queued.values));
}

TEST(DeviceRecordingRefusals, SayWhyNothingIsRecorded) {
  TrainConfig config;
  EXPECT_EQ(unrecorded_because(config, true), "");
  EXPECT_TRUE(has(unrecorded_because(config, false), "SSN_SUM"));
  config.shards = 2;
  EXPECT_TRUE(has(unrecorded_because(config, true), "--shards"));
}
TEST(DeviceRecordingRefusals, EndARecordingThatWaits) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  if constexpr (build::has_cuda) {
    const Tensor x = Tensor::zeros({1}, DType::f32, Device::cuda);
    EXPECT_THROW(record([&] { x.to(Device::cpu); }), Error);
    const auto graph = record([&] { x.fill(3); });
    EXPECT_EQ(*x.to(Device::cpu).data<float>(), 0);
    graph->replay();
    EXPECT_EQ(*x.to(Device::cpu).data<float>(), 3);
  }
}

TEST(DevicePrecision, NeedsTensorCoresThatHaveIt) {
  if (!build::cuda_on_host) GTEST_SKIP() << "the GPU is what it is";
  TrainConfig config;
  config.device = "cuda";
  setenv("SSN_TEST_CAPABILITY", "75", 1);
  check_precision(config);
  for (const char* precision : {"tf32", "bf16"}) {
    config.precision = precision;
    try {
      check_precision(config);
      ADD_FAILURE() << precision << " was taken";
    } catch (const UsageError& error) {
      EXPECT_TRUE(
          has(error.what(), "needs a GPU of compute capability 8.0 or newer, this one has 7.5: use f32"));
    }
  }
  setenv("SSN_TEST_CAPABILITY", "80", 1);
  check_precision(config);
  unsetenv("SSN_TEST_CAPABILITY");
}

TEST(DeviceCapability, MustBeOneThatTheKernelsAreFor) {
  if (!build::cuda_on_host) GTEST_SKIP() << "the GPU is what it is";
  if constexpr (build::has_cuda) {
    setenv("SSN_TEST_CAPABILITY", "61", 1);
    const std::string missing = missing_for_cuda();
    unsetenv("SSN_TEST_CAPABILITY");
    EXPECT_TRUE(has(
        missing,
        "sees a GPU of compute capability 6.1, and this build is for 7.5 and newer (the kernels need 7.5"));
    EXPECT_EQ(missing_for_cuda(), "");
  }
}

/// Memory is taken and given back beside what is recorded.
TEST(DeviceRecordingRefusals, DoNotConcernPinnedMemory) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  if constexpr (build::has_cuda) {
    constexpr std::int64_t kUnseen = 1234567;  // floats, more than the pool has
    const Tensor x = Tensor::zeros({1}, DType::f32, Device::cuda);
    const auto graph = record([&] {
      pinned(Tensor::zeros({kUnseen}, DType::f32));
      memory::release_pinned(memory::allocate_pinned(64));
      x.fill(3);
    });
    graph->replay();
    EXPECT_EQ(*x.to(Device::cpu).data<float>(), 3);
  }
}

/// Every batch of a feed, copied by work that is queued and not waited for, beside the loader's.
void check_feed(const Loader& loader) {
  Feed feed(loader, {.part_count = 2, .parts = 2, .end_epoch = 2}, Device::cuda);
  std::vector<Batch> batches;
  while (std::optional<Batch> batch = feed.next()) {
    for (Tensor* tensor : {&batch->images, &batch->tokens, &batch->labels})
      if (*tensor) *tensor = tensor->clone();
    batches.push_back(std::move(*batch));
    feed.start_next();
  }
  ASSERT_EQ(std::ssize(batches), 2 * 2 * loader.steps_per_epoch());
  for (const Batch& found : batches) {
    const Batch want = loader.batch(found.epoch, found.step, found.part, 2);
    for (const auto field : {&Batch::images, &Batch::tokens, &Batch::labels}) {
      const Tensor &x = found.*field, &y = want.*field;
      EXPECT_EQ(bool(x), bool(y));
      if (y) {
        EXPECT_TRUE(same_bits(x, y)) << found.epoch << " " << found.step;
      }
    }
  }
}

/// f(), and f() on streams that do their work as late as they may.
void prompt_and_late(const std::function<void()>& f) {
  f();
  if constexpr (build::cuda_on_host) {
    cuda_on_host::streams() = cuda_on_host::Streams::late;
    f();
    cuda_on_host::streams() = cuda_on_host::Streams::prompt;
  }
}

TEST(DeviceFeed, GivesTheLoadersBatches) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  const Loader text(dataset_of(text_config()).train, {.batch = 3, .training = false});
  prompt_and_late([&] { check_feed(text); });
}

/// They travel as bytes, of which it makes the CPU's bits: for training and as they are tested, of a set and
/// of a part.
TEST(DeviceFeed, ChangesImagesAsTheProcessorDoes) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  for (const char* data : {"synthetic:3x9x8x4x40", "synthetic:1x5x7x4x40"}) {
    const Samples set = load_dataset(data, {.flip = true, .crop_padding = 2, .cutout = 3}).train;
    for (const bool training : {true, false}) {
      const Loader loader(set, {.batch = 5, .seed = 3, .training = training});
      EXPECT_EQ(loader.raw_batch(1, 2).images.dtype(), DType::u8);
      prompt_and_late([&] { check_feed(loader); });
    }
    const Loader part(subset(set, {31, 2, 17, 5}), {.batch = 2});
    prompt_and_late([&] { check_feed(part); });
  }
}

/// Batches that are under way while others are measured give what each gives alone.
TEST(DeviceEvaluation, IsThatOfItsBatches) {
  if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  const OneThread one_thread;
  for (TrainConfig config : {sample_config(), text_config()}) {
    config.device = name_of(Device::cuda);
    const Dataset& dataset = dataset_of(config);
    SoloComm solo;
    Model model(config, dataset.facts.input, Device::cuda);
    model.build(solo);
    const std::int64_t batch = config.data == "digits" ? 100 : 7;
    const Loader loader(dataset.test, {.batch = batch, .training = false});
    double sum = 0, labels = 0;
    const NoGrad no_grad;
    for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
      const Batch of = loader.batch(0, step);
      const Var logits = model.network->forward(network_input(of, Device::cuda), {});
      sum += values_of(cross_entropy(logits, of.labels.to(Device::cuda), 0, 1).value())[0];
      labels += static_cast<double>(of.size());
    }
    prompt_and_late([&] {
      const Metrics metrics = evaluate(solo, model, loader);
      EXPECT_EQ(metrics.samples(), labels);
      EXPECT_EQ(metrics.loss(), sum / labels);
    });
  }
}

/// What something forgets to wait for has not happened yet.
TEST(DeviceTrainingLate, GivesTheSameBits) {
  if (!build::cuda_on_host || build::exact_allocation)
    GTEST_SKIP() << "only emulated GPUs can be late, and sanitizers see no more of it";
  const OneThread one_thread;
  for (const Setting& setting : settings()) {
    if (setting.steps > 3) continue;  // they are like the others
    TrainConfig config = setting.base;
    setting.change(config);
    const Trained prompt = trained(config, Device::cuda, 4);
    cuda_on_host::streams() = cuda_on_host::Streams::late;
    const Trained late = trained(config, Device::cuda, 4);
    cuda_on_host::streams() = cuda_on_host::Streams::prompt;
    EXPECT_TRUE(same_bits(late.values, prompt.values)) << setting.name;
  }
}

class DeviceCommands : public testing::Test {
 protected:
  void SetUp() override {
    if (!available(Device::cuda)) GTEST_SKIP() << "no CUDA device, and kernels do not run on the host";
  }
};

/// The gradient of a small network, in f64, on one of the devices.
Tensor gradient(const Family& f, Device device, WeightPolicy policy) {
  Parameters parameters(DType::f64, device);
  SharedWeights weights(parameters, {.budget = Budget::parse("30%"), .mapping = {.kind = MappingKind::type}},
                        policy);
  const auto network = make_network(f.name, f.task, {weights, parameters}, f.size);
  weights.build();
  parameters.build();
  const Random draws(2, f.name);
  const Tensor images = Tensor::empty({4, f.task.height, f.task.width, f.task.channels}, DType::f64);
  std::uint64_t draw = 0;
  for (double& v : images.span<double>()) v = draws.normal(draw++);
  const std::vector<std::int32_t> classes = {0, 2, 1, 1};
  const Tensor labels = Tensor::of<std::int32_t>({4}, classes);
  backward(
      cross_entropy(network->forward({.images = images.to(device)}, {.training = true, .seed = 3, .step = 2}),
                    labels.to(device), 0, 0.25));
  weights.finish_backward();
  return parameters.gradients().to(Device::cpu);
}

TEST_F(DeviceCommands, GradientsOfEveryFamilyAreTheProcessors) {
  const OneThread one_thread;
  for (const Family& f : kFamilies) {
    const auto want = values_of(gradient(f, Device::cpu, WeightPolicy::eager));
    EXPECT_GT(scale_of(want), 1e-3);
    for (const WeightPolicy policy : {WeightPolicy::lean, WeightPolicy::eager})
      EXPECT_TRUE(close(values_of(gradient(f, Device::cuda, policy)), want, 1e-9)) << f.name;
  }
}

/// The parameters and the optimizer's states, whatever else there is.
testing::AssertionResult alike(const std::string& left, const std::string& right) {
  const Archive a = load_checkpoint(left + "/checkpoint.h5"), b = load_checkpoint(right + "/checkpoint.h5");
  if (a.tensors.size() != b.tensors.size()) return testing::AssertionFailure() << "other tensors";
  for (const auto& [name, tensor] : a.tensors) {
    const auto want = values_of(b.tensor(name));
    if (const auto same = close(values_of(tensor), want, 1e-3, scale_of(want, 1e-3)); !same)
      return testing::AssertionFailure() << name << ": " << same.message();
  }
  return testing::AssertionSuccess();
}

TEST_F(DeviceCommands, GoOnExactlyAndOnTheOtherDevice) {
  const TemporaryDirectory dir("device_resume");
  const auto run = [&](const char* device, const char* name, const char* steps) {
    return train_small({"--device", device, "--out", dir / name, "--stop-after", steps, "--ema", "0.9",
                        "--optimizer", "adamw", "--micro-batches", "2"});
  };
  const auto resume = [&](const char* device, const char* from, const char* to) {
    output_of(train, {"--quiet", "--resume", dir / from, "--out", dir / to, "--device", device,
                      "--stop-after", "4"});
  };
  run("cpu", "cpu", "4");
  const nlohmann::json result = run("cuda", "cuda", "4");
  EXPECT_EQ(result["device"], "cuda");
  const auto taken = result["memory"]["training"].get<double>();
  if (!build::exact_allocation) {
    EXPECT_NEAR(taken, result["memory"]["predicted"].get<double>(), 0.1 * taken);
  }
  EXPECT_TRUE(alike(dir / "cuda", dir / "cpu"));
  run("cpu", "cpu_part", "2");
  run("cuda", "cuda_part", "2");
  resume("cuda", "cuda_part", "cuda_cuda");
  EXPECT_EQ(file_text(dir / "cuda_cuda/checkpoint.h5"), file_text(dir / "cuda/checkpoint.h5"));
  resume("cuda", "cpu_part", "cpu_cuda");
  EXPECT_TRUE(alike(dir / "cpu_cuda", dir / "cpu"));
  resume("cpu", "cuda_part", "cuda_cpu");
  EXPECT_TRUE(alike(dir / "cuda_cpu", dir / "cpu"));
}

/// Evaluations and a checkpoint between the steps, and the reports of a run.
TEST_F(DeviceCommands, RecordedStepsGoOnAfterMeasuringAndResuming) {
  const TemporaryDirectory dir("device_recorded");
  const auto run = [&](const char* graph, const char* name, const char* steps) {
    return train_small({"--device", "cuda", "--graph", graph, "--out", dir / name, "--stop-after", steps,
                        "--eval-every", "1", "--validation", "0.1", "--clip", "0.5", "--ema", "0.9"});
  };
  const nlohmann::json queued = run("off", "queued", "8"), recorded = run("on", "recorded", "8");
  EXPECT_EQ(queued["replayed_steps"], 0);
  EXPECT_EQ(recorded["replayed_steps"], 6);
  EXPECT_GT(recorded["host_seconds_per_step"], 0);
  run("on", "part", "5");
  output_of(train, {"--quiet", "--resume", dir / "part", "--out", dir / "rest", "--stop-after", "8"});
  const Archive want = load_checkpoint(dir / "queued/checkpoint.h5");
  for (const char* name : {"recorded", "rest"}) {
    const Archive found = load_checkpoint(dir / std::string(name) + "/checkpoint.h5");
    ASSERT_EQ(found.tensors.size(), want.tensors.size());
    for (const auto& [key, tensor] : want.tensors)
      EXPECT_TRUE(same_bits(found.tensor(key), tensor)) << name << " " << key;
  }
}

TEST_F(DeviceCommands, MeasureAndStartFromWhatIsThere) {
  const TemporaryDirectory dir("device_commands");
  train_small({"--device", "cpu", "--out", dir / "run", "--stop-after", "4"});
  const auto measured = [&](const char* device) {
    return nlohmann::json::parse(
        output_of(eval, {dir / "run/checkpoint.h5", "--json", "--quiet", "--device", device}));
  };
  EXPECT_EQ(measured("cuda")["test_error1"], measured("cpu")["test_error1"]);
  EXPECT_NEAR(measured("cuda")["test_loss"].get<double>(), measured("cpu")["test_loss"].get<double>(), 2e-4);

  for (const char* device : {"cpu", "cuda"})
    train_small({"--device", device, "--out", dir / device, "--stop-after", "1", "--init",
                 dir / "run/checkpoint.h5", "--budget", "20%"});
  EXPECT_TRUE(alike(dir / "cuda", dir / "cpu"));
}

TEST_F(DeviceCommands, SearchAndProfile) {
  const TemporaryDirectory dir("device_search");
  const auto found =
      nlohmann::json::parse(output_of(map, small_run({"--device", "cuda", "--groups", "3", "--search-epochs",
                                                      "1", "--out", dir / "map.json", "--json"})));
  EXPECT_TRUE(std::filesystem::exists(dir / "map.json"));
  EXPECT_EQ(nlohmann::json::parse(file_text(dir / "map.json"))["notes"]["groups"], 3);
  const auto times =
      nlohmann::json::parse(output_of(profile, {"--quiet", "--json", "--device", "cuda", "--model",
                                                "wrn-10-1", "--data", "synthetic:1x7x6x3x50", "--batch", "12",
                                                "--turns", "2", "--steps", "1", "--budgets", "dense,30%"}));
  for (const auto& budget : times["budgets"]) EXPECT_GT(budget["step_seconds"]["median"], 0);
}

}  // namespace
}  // namespace ssn::test
