// Data parallel training: N ranks do what one rank does with N micro-batches. On GPUs (SSN_TEST_DEVICE=cuda)
// it is skipped where the ranks have none each.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "autograd/reducer.h"
#include "layers/linear.h"
#include "runtime/config.h"
#include "runtime/flavour.h"
#include "tests/close.h"
#include "tests/mpi/ranks.h"
#include "tests/mpi/shared_directory.h"
#include "tests/training_run.h"
#include "tools/training/trainer.h"

namespace ssn {
namespace {

using test::small_run;

class DataParallel : public testing::Test {
 protected:
  void SetUp() override {
    if (test::test_device() == "cpu") return;
    if (const std::string missing = missing_gpus(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

/// What rank 0 prints.
std::string train_on(Comm& comm, const Arguments& arguments) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(train(comm, small_run(arguments)), 0);
  return testing::internal::GetCapturedStdout();
}

/// Two linear layers that share what they have, with integers for values and gradients: every sum is exact,
/// in any order.
struct IntegerNetwork {
  IntegerNetwork(Comm& comm, WeightPolicy policy)
      : weights(parameters,
                {.budget = Budget::parse("40"),
                 .mapping = {},
                 .combine = Combine::wavg,
                 .templates = 2,
                 .gain = Gain::off},
                policy) {
    const Scope scope{weights, parameters};
    first.emplace(scope.at("first"), 3, 5);
    second.emplace(scope.at("second"), 5, 4);
    weights.build();
    parameters.build([&](std::size_t bytes) { return comm.allocate(bytes); });
    const auto values = parameters.values().span<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 11) - 5;
    parameters.values_changed();
  }
  /// Forward and backward of part `part`.
  void run(int part) {
    const std::int64_t rows = 2 + part;
    Tensor x = Tensor::empty({rows, 3}, DType::f32), gy = Tensor::empty({rows, 4}, DType::f32);
    for (std::int64_t i = 0; i < x.size(); ++i)
      x.data<float>()[i] = static_cast<float>((i * 5 + part) % 7 - 3);
    for (std::int64_t i = 0; i < gy.size(); ++i)
      gy.data<float>()[i] = static_cast<float>((i * 3 + part) % 5 - 2);
    const Var y = (*second)((*first)(Var::constant(x)));
    backward(std::span(&y, 1), std::span(&gy, 1));
    weights.finish_backward();
  }

  Parameters parameters;
  SharedWeights weights;
  std::optional<Linear> first, second;
};

TEST_F(DataParallel, IntegerGradientsAreThoseOfMicroBatches) {
  Comm& comm = test_comm();
  for (const auto& [policy, bucket] : {std::pair{WeightPolicy::eager, 1}, {WeightPolicy::lean, 1 << 20}}) {
    IntegerNetwork parallel(comm, policy);
    Reducer reducer(comm, parallel.parameters, {.bucket = bucket});
    parallel.weights.on_complete([&](const Completion& c) { reducer.complete(c.range); },
                                 reducer.least_part());
    parallel.run(comm.rank());
    reducer.finish();

    SoloComm solo;
    IntegerNetwork alone(solo, policy);
    for (int part = 0; part < comm.size(); ++part) {
      alone.weights.set_reporting(part + 1 == comm.size());
      alone.run(part);
    }
    EXPECT_TRUE(test::same_bits(parallel.parameters.gradients(), alone.parameters.gradients()));
    EXPECT_GT(test::scale_of(test::values_of(alone.parameters.gradients())), 10);
  }
}

TEST_F(DataParallel, FirstStepIsThatOfMicroBatches) {
  Comm& comm = test_comm();
  const SharedDirectory dir("first_step");
  for (const std::string clip : {"0", "0.05"}) {
    const std::string in_ranks = dir / ("ranks" + clip), in_parts = dir / ("parts" + clip);
    train_on(comm, {"--out", in_ranks, "--stop-after", "1", "--clip", clip});
    if (comm.rank() != 0) continue;
    SoloComm solo;
    train_on(solo, {"--out", in_parts, "--stop-after", "1", "--clip", clip, "--micro-batches",
                    fmt::format("{}", comm.size())});
    const Archive ranks = load_checkpoint(in_ranks + "/checkpoint.h5"),
                  parts = load_checkpoint(in_parts + "/checkpoint.h5");
    for (const auto& [name, tensor] : parts.tensors) {
      // After one step the velocity is the gradient, clipped, and the decay of values that are the same.
      if (!name.starts_with("optimizer/velocity/")) continue;
      EXPECT_TRUE(test::close(test::values_of(ranks.tensor(name)), test::values_of(tensor), 2e-6,
                              test::scale_of(test::values_of(tensor), 1e-2)))
          << name;
    }
  }
}

TEST_F(DataParallel, CountsTheBytesOfAStep) {
  Comm& comm = test_comm();
  const SharedDirectory dir("bytes");
  const std::string out =
      train_on(comm, {"--out", dir / "run", "--json", "--mapping", "random", "--groups", "3"});
  if (comm.rank() != 0) {
    EXPECT_EQ(out, "");
    return;
  }
  const auto result = nlohmann::json::parse(out);
  EXPECT_EQ(result["ranks"], comm.size());
  EXPECT_EQ(result["wire_bytes_per_step"],
            comm.size() == 1 ? 0 : 4 * result["parameters"]["total"].get<std::int64_t>());
}

/// Whether anything travels: not where all ranks share memory.
bool travels(Comm& comm) {
  const bool possible = comm.set_wire(DType::bf16);
  comm.set_wire(DType::f32);
  return possible;
}

TEST_F(DataParallel, Bf16OnTheWireHardlyChangesAStep) {
  Comm& comm = test_comm();
  const SharedDirectory dir("wire");
  const auto run = [&](const std::string& name, const std::string& wire) {
    train_on(comm, {"--out", dir / name, "--stop-after", "1", "--wire", wire});
  };
  run("f32", "f32");
  run("bf16", "bf16");
  run("again", "bf16");
  const bool changes = travels(comm);
  if (comm.rank() != 0) return;
  const Archive a = load_checkpoint(dir / "f32/checkpoint.h5"),
                b = load_checkpoint(dir / "bf16/checkpoint.h5"),
                c = load_checkpoint(dir / "again/checkpoint.h5");
  double error = 0, norm = 0;
  for (const auto& [name, tensor] : a.tensors) {
    if (!name.starts_with("optimizer/velocity/")) continue;
    EXPECT_TRUE(test::same_bits(b.tensor(name), c.tensor(name))) << name;
    const auto x = test::values_of(tensor), y = test::values_of(b.tensor(name));
    for (std::size_t i = 0; i < x.size(); ++i) {
      error += (x[i] - y[i]) * (x[i] - y[i]);
      norm += x[i] * x[i];
    }
  }
  EXPECT_LT(std::sqrt(error / norm), 0.01);
  EXPECT_EQ(error > 0, changes);
}

TEST_F(DataParallel, ProfileCountsTheBytesOfAParameterUnderEveryBudget) {
  Comm& comm = test_comm();
  const bool halves = travels(comm);
  for (const auto& [overlap, wire] : {std::pair<std::string, std::string>{"on", "f32"}, {"off", "bf16"}}) {
    testing::internal::CaptureStdout();
    profile(
        comm,
        {"--quiet",      "--threads", "1",       "--model",   "wrn-10-1", "--data", "synthetic:1x7x6x3x50",
         "--batch",      "12",        "--turns", "2",         "--steps",  "2",      "--budgets",
         "dense,30%,2%", "--bucket",  "1",       "--overlap", overlap,    "--wire", wire,
         "--json"});
    const std::string out = testing::internal::GetCapturedStdout();
    if (comm.rank() != 0) continue;
    const nlohmann::json json = nlohmann::json::parse(out);
    for (const nlohmann::json& p : json["budgets"]) {
      const int each = comm.size() == 1 ? 0 : wire == "bf16" && halves ? 2 : 4;
      EXPECT_EQ(p["wire_bytes_per_step"], each * p["parameters"].get<std::int64_t>());
      EXPECT_EQ(p["raw_busbw"].get<double>() > 0, comm.size() > 1);
    }
  }
}

TEST_F(DataParallel, ResumesExactly) {
  Comm& comm = test_comm();
  const SharedDirectory dir("resume");
  const auto with = [](Arguments options) {
    options.insert(options.end(), {"--optimizer", "lamb", "--ema", "0.9"});
    return options;
  };
  train_on(comm, with({"--out", dir / "whole"}));
  train_on(comm, with({"--out", dir / "part", "--stop-after", "6"}));
  train_on(comm, {"--resume", dir / "part"});
  if (comm.rank() == 0) {
    EXPECT_EQ(test::file_text(dir / "whole/checkpoint.h5"), test::file_text(dir / "part/checkpoint.h5"));
  }
}

/// The tensors of two runs' checkpoints.
void expect_same_tensors(const std::string& left, const std::string& right, const std::string& what) {
  const Archive a = load_checkpoint(left + "/checkpoint.h5"), b = load_checkpoint(right + "/checkpoint.h5");
  EXPECT_EQ(a.tensors.size(), b.tensors.size()) << what;
  for (const auto& [name, tensor] : b.tensors)
    EXPECT_TRUE(test::same_bits(a.tensor(name), tensor)) << what << ": " << name;
}

/// On GPUs: sums that are repeated within a step, in small buckets, beside those that are queued.
TEST_F(DataParallel, RecordedStepsGiveTheSameBitsAndBytes) {
  if (test::test_device() != "cuda") GTEST_SKIP() << "only GPUs record (SSN_TEST_DEVICE)";
  Comm& comm = test_comm();
  const bool halves = travels(comm);
  const int steps = build::exact_allocation ? 4 : 6;  // or it takes long
  const SharedDirectory dir("recorded");
  const std::vector<std::pair<std::string, Arguments>> settings = {
      {"dense", {"--budget", "dense"}},
      {"shared", {"--ema", "0.9"}},
      {"parts", {"--micro-batches", "2", "--clip", "0.5"}},
      {"bf16", {"--wire", "bf16"}},
      {"after", {"--overlap", "off"}},
  };
  for (const auto& [what, options] : settings) {
    if (halves != (what == "bf16")) continue;  // each way the sums travel has its settings
    nlohmann::json results[2];
    for (const std::string graph : {"on", "off"}) {
      Arguments arguments = {"--graph", graph,          "--bucket",
                             "1",       "--stop-after", fmt::format("{}", steps),
                             "--json",  "--out",        dir / (what + graph)};
      arguments.insert(arguments.end(), options.begin(), options.end());
      const std::string out = train_on(comm, arguments);
      if (comm.rank() == 0) results[graph == "on"] = nlohmann::json::parse(out);
    }
    if (comm.rank() > 0) continue;
    EXPECT_EQ(results[1]["replayed_steps"], steps - 2) << what;
    EXPECT_EQ(results[0]["replayed_steps"], 0) << what;
    EXPECT_GT(results[1]["host_seconds_per_step"], 0) << what;
    EXPECT_EQ(results[1]["wire_bytes_per_step"], results[0]["wire_bytes_per_step"]) << what;
    EXPECT_EQ(results[1]["wire_bytes_per_step"],
              (halves ? 2 : 4) * results[1]["parameters"]["total"].get<std::int64_t>());
    expect_same_tensors(dir / (what + "on"), dir / (what + "off"), what);
  }
}

TEST_F(DataParallel, RecordedStepsGoOnAfterResuming) {
  if (test::test_device() != "cuda") GTEST_SKIP() << "only GPUs record (SSN_TEST_DEVICE)";
  Comm& comm = test_comm();
  const SharedDirectory dir("recorded_resume");
  train_on(comm, {"--graph", "off", "--stop-after", "8", "--eval-every", "1", "--out", dir / "queued"});
  train_on(comm, {"--stop-after", "3", "--out", dir / "part"});
  train_on(comm, {"--resume", dir / "part", "--stop-after", "8", "--eval-every", "1"});
  if (comm.rank() == 0) expect_same_tensors(dir / "part", dir / "queued", "resumed");
}

/// A batch whose shapes one rank alone has not seen.
TEST_F(DataParallel, RecordedStepsAreThoseThatAllRanksCanRepeat) {
  if (test::test_device() != "cuda") GTEST_SKIP() << "only GPUs record (SSN_TEST_DEVICE)";
  Comm& comm = test_comm();
  const Tensor sum = Tensor::zeros({1}, DType::f32, Device::cuda);
  Recorder recorder(comm, 1);
  int queued = 0;
  const auto work = [&](const Batch& batch) {
    ++queued;
    sum.copy_from(batch.images.slice(0, {1}));
    comm.start_sum(sum);
    comm.join_sums();
    return Given{sum.clone(), batch.labels.clone(), 8};
  };
  for (int step = 0; step < 7; ++step) {
    const std::int64_t samples = step == 4 && comm.rank() == 1 ? 3 : 2;
    const Batch batch{.images = Tensor::full({samples, 1}, step + comm.rank(), DType::f32, Device::cuda),
                      .labels = Tensor::zeros({samples}, DType::i32, Device::cuda)};
    recorder.begin_step(step);
    recorder.prepare(0, batch);
    const Given given = recorder.part(0, batch, work);
    comm.wait_all();
    float want = 0;
    for (int r = 0; r < comm.size(); ++r) want += static_cast<float>(step + r);
    EXPECT_EQ(*given.loss.to(Device::cpu).data<float>(), want) << step;
  }
  EXPECT_EQ(queued, 2 + 1 + 1) << "the first, the one that was recorded, and the one of three samples";
  EXPECT_EQ(recorder.replayed(), 4);
}

/// A set in which one image has no numbers.
class Poisoned : public SampleSet {
 public:
  Poisoned(Samples set, std::int32_t bad) : set_(std::move(set)), bad_(bad) {}
  std::int64_t size() const override { return set_->size(); }
  Batch raw(std::span<const std::int32_t> samples, const Random& random, bool training) const override {
    Batch batch = set_->make(samples, random, training);
    const std::int64_t row = samples.empty() ? 0 : batch.images.size() / std::ssize(samples);
    for (std::int64_t i = 0; i < std::ssize(samples); ++i)
      if (samples[static_cast<std::size_t>(i)] == bad_)
        std::fill_n(batch.images.data<float>() + i * row, row, std::numeric_limits<float>::quiet_NaN());
    return batch;
  }

 private:
  Samples set_;
  std::int32_t bad_;
};

TEST_F(DataParallel, AStepThatIsNotFiniteOnOneRankStopsOrIsLeftOutOnAll) {
  Comm& comm = test_comm();
  TrainConfig config;
  config.model = "wrn-10-1", config.data = "synthetic:1x7x6x3x50", config.budget = "30%";
  config.batch = 12, config.epochs = 2, config.threads = 1, config.device = test::test_device();
  comm.use_device(device_of(config));
  constexpr std::int32_t kBad = 17;
  Dataset dataset = load_dataset(config.data, {});
  dataset.train = std::make_shared<Poisoned>(dataset.train, kBad);
  std::vector<std::int64_t> places;  // of the image, in the epochs
  const Loader loader(dataset.train, {.batch = config.batch});
  for (std::int64_t epoch = 0; epoch < config.epochs; ++epoch) {
    const auto order = loader.order(epoch);
    places.push_back(std::ranges::find(*order, kBad) - order->begin());
  }
  const std::int64_t steps = loader.steps_per_epoch() * config.batch;
  std::map<std::string, Tensor> values;  // by --graph
  const auto run = [&](const std::string& what) {
    config.on_nonfinite = what;
    Model model(config, dataset.facts.input, device_of(config));
    model.build(comm);
    Trainer trainer(comm, model, {.config = config, .dataset = dataset, .train = dataset.train});
    const TrainResult result = trainer.run();
    for (const double value : test::values_of(model.parameters.values())) EXPECT_TRUE(std::isfinite(value));
    for (const Parameters::Buffer& buffer : model.parameters.buffers())
      for (const double value : test::values_of(buffer.tensor))
        EXPECT_TRUE(std::isfinite(value)) << buffer.name;
    EXPECT_TRUE(std::isfinite(result.train->loss()));
    values[config.graph] = model.parameters.values().to(Device::cpu);
    return result.skipped;
  };
  for (const char* graph : {"off", "on"}) {
    config.graph = graph;
    EXPECT_EQ(run("skip"), std::ranges::count_if(places, [&](std::int64_t place) { return place < steps; }));
  }
  EXPECT_TRUE(test::same_bits(values["on"], values["off"]))
      << "steps that are repeated, and those that are not";
  ASSERT_LT(places[0], steps);
  try {
    run("stop");
    FAIL() << "it went on";
  } catch (const Error& error) {
    const std::int64_t rank = places[0] % config.batch / (config.batch / comm.size());
    const std::string where = comm.size() == 1 ? "" : fmt::format(" on rank {}", rank);
    EXPECT_TRUE(test::has(error.what(),
                          fmt::format("step {} of epoch 1: the loss is not finite{}, and the gradient is not "
                                      "finite{}, first that of group",
                                      places[0] / config.batch + 1, where, where)));
  }
}

TEST_F(DataParallel, AveragesStatisticsForAWhile) {
  Comm& comm = test_comm();
  Parameters parameters;
  const Tensor buffer = parameters.add_buffer("running", {3}, 0);
  const float own[] = {1.0F + static_cast<float>(comm.rank()), -2, 4 * static_cast<float>(comm.rank())};
  std::copy(std::begin(own), std::end(own), buffer.data<float>());
  {
    const AveragedStatistics averaged(comm, parameters);
    const float half = static_cast<float>(comm.size() - 1) / 2;
    EXPECT_FLOAT_EQ(buffer.data<float>()[0], 1 + half);
    EXPECT_EQ(buffer.data<float>()[1], -2);
    EXPECT_FLOAT_EQ(buffer.data<float>()[2], 4 * half);
  }
  EXPECT_TRUE(test::same_bits(buffer, Tensor::of<float>({3}, own)));
}

TEST_F(DataParallel, AllRanksFailAlike) {
  Comm& comm = test_comm();
  std::string message = "nothing";
  try {
    on_root(comm, [] { fail("write", "the disk is full"); });
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("[write] the disk is full"), std::string::npos) << message;
  const SharedDirectory dir("parts");
  EXPECT_THROW(train(comm, small_run({"--out", dir / "run", "--micro-batches", "13"})), UsageError);
  // Rank 0 cannot write the checkpoint, which it finds out beside the training.
  if (comm.rank() == 0) std::filesystem::create_directories(dir / "full/checkpoint.h5.partial/taken");
  comm.barrier();
  EXPECT_THROW(train(comm, small_run({"--out", dir / "full", "--save-every", "1"})), Error);
  if (comm.size() == 1) return;
  const char* epochs = comm.rank() == 0 ? "1" : "2";
  EXPECT_THROW(train(comm, small_run({"--out", dir / "run", "--epochs", epochs})), UsageError);

  const char* turns = comm.rank() == 0 ? "2" : "3";
  EXPECT_THROW(profile(comm, {"--quiet", "--data", "synthetic:1x7x6x3x50", "--turns", turns}), UsageError);

  // A vocabulary of as many pieces that are others.
  if (comm.rank() < 2) {
    std::ofstream text(dir / fmt::format("{}.txt", comm.rank()));
    for (int i = 0; i < 40; ++i) text << (comm.rank() == 0 ? "one two three\n\n" : "one tow three\n\n");
  }
  comm.barrier();
  try {
    train(comm, {"--quiet", "--threads", "1", "--model", "bert-1-64", "--length", "8", "--vocab-size", "20",
                 "--batch", "8", "--data", "text:" + dir / fmt::format("{}.txt", std::min(comm.rank(), 1)),
                 "--out", dir / "run"});
    FAIL() << "the ranks trained on two vocabularies";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("The first has a vocabulary"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1 has not"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ssn
