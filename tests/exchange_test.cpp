// Weights from and for other programs: names, files, ssn export, ssn import and ssn train --init.
#include <gtest/gtest.h>

#include "layers/models/torch_names.h"
#include "runtime/config.h"
#include "runtime/npz.h"
#include "runtime/safetensors.h"
#include "ssn/fit.h"
#include "tests/close.h"
#include "tests/training_run.h"
#include "tools/exchange/take_weights.h"

namespace ssn::test {
namespace {

using Json = nlohmann::ordered_json;

std::string data_file(const std::string& name) {
  return std::string(build::source_data_dir) + "/../tests/data/" + name;
}
void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}
/// The message of the Error that f() ends with.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(TorchNames, AreThoseThatUsersKnow) {
  // The names of whole networks: network_golden_test.
  EXPECT_EQ(torch_name("wrn-16-2", "block2.layer.0.shortcut"), "block2.layer.0.convShortcut.weight");
  EXPECT_EQ(torch_name("wrn-16-2", "bn.gain"), "bn1.weight");
  EXPECT_EQ(torch_name("wrn-16-2", "block1.layer.1.bn2.running_var"), "block1.layer.1.bn2.running_var");
  EXPECT_EQ(torch_name("resnet-20", "layer3.2.conv1"), "layer3.2.conv1.weight");
  EXPECT_EQ(torch_name("wrn-50-2", "stem.conv2"), "conv1.3.weight");
  EXPECT_EQ(torch_name("wrn-50-2", "stem.bn3.bias"), "bn1.bias");
  EXPECT_EQ(torch_name("wrn-50-2", "layer1.0.shortcut_bn.gain"), "layer1.0.downsample.1.weight");
  EXPECT_EQ(torch_name("densenet-121", "block2.11.bn1.gain"),
            "features.denseblock2.denselayer12.norm1.weight");
  EXPECT_EQ(torch_name("densenet-121", "fc"), "classifier.weight");
  EXPECT_EQ(torch_name("bert-base", "encoder.layer.11.output.bias"),
            "bert.encoder.layer.11.output.dense.bias");
}

Archive some_tensors() {
  Archive archive;
  archive.tensors["a.weight"] = Tensor::of<float>({2, 3}, std::vector<float>{1, 2, 3, 4, 5, -6.5F});
  archive.tensors["b"] = Tensor::of<std::uint8_t>({3}, std::vector<std::uint8_t>{1, 2, 255});
  archive.tensors["c"] = Tensor::of<std::int64_t>({}, std::vector<std::int64_t>{-7});
  archive.tensors["d"] = Tensor::zeros({0, 4}, DType::f64);
  archive.tensors["e"] = Tensor::full({5}, 0.5, DType::bf16);
  archive.attributes["format"] = std::string("pt");
  archive.attributes["classes"] = std::int64_t{10};
  return archive;
}

TEST(Safetensors, ComeBackAsTheyWere) {
  const TemporaryDirectory dir("safetensors");
  const Archive archive = some_tensors();
  write_safetensors(dir / "a.safetensors", archive);
  const Archive read = read_safetensors(dir / "a.safetensors");
  ASSERT_EQ(read.tensors.size(), archive.tensors.size());
  for (const auto& [name, tensor] : archive.tensors)
    EXPECT_TRUE(same_bits(read.tensor(name), tensor)) << name;
  EXPECT_EQ(read.attribute<std::string>("classes"), "10");
  EXPECT_EQ(file_text(dir / "a.safetensors").size() % 8, (2 * 5 + 3) % 8);
}

/// A file of this header and so many bytes of data.
std::string safetensors_text(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header +
         std::string(data, 'x');
}

TEST(Safetensors, WrongFilesAreRefused) {
  const TemporaryDirectory dir("safetensors_wrong");
  const std::string file = dir / "wrong.safetensors";
  const auto refused = [&](const std::string& text) {
    write_file(file, text);
    return error_of([&] { read_safetensors(file); });
  };
  const auto with = [&](const std::string& rest, std::size_t data) {
    return refused(safetensors_text(R"({"t":{"dtype":"F32",)" + rest + "}}", data));
  };
  EXPECT_TRUE(has(with(R"("shape":[2],"data_offsets":[0,8])", 8), "nothing was refused"));
  EXPECT_TRUE(has(refused("short"), "too few"));
  EXPECT_TRUE(has(refused(std::string(8, '\x7f')), "its header would have"));
  EXPECT_TRUE(has(refused(safetensors_text("[1]", 0)), "not a JSON object"));
  EXPECT_TRUE(has(refused(safetensors_text("{\"t\":", 0)), "not a JSON object"));
  EXPECT_TRUE(has(with(R"("shape":[2],"data_offsets":[0,8])", 7), "t: it would be at bytes 0 to 8 of 7"));
  EXPECT_TRUE(has(with(R"("shape":[2],"data_offsets":[0,8])", 9), "1 bytes of it belong to no tensor"));
  EXPECT_TRUE(has(with(R"("shape":[2],"data_offsets":[4,12])", 12), "begins at byte 4"));
  EXPECT_TRUE(has(with(R"("shape":[3],"data_offsets":[0,8])", 8), "does not go with its 8 bytes"));
  EXPECT_TRUE(has(with(R"("shape":[-2],"data_offsets":[0,8])", 8), "whole numbers"));
  EXPECT_TRUE(has(with(R"("shape":[9223372036854775807,4],"data_offsets":[0,8])", 8), "does not go with"));
  EXPECT_TRUE(has(with(R"("shape":[0,9223372036854775807],"data_offsets":[0,0])", 0), "is not possible"));
  EXPECT_TRUE(has(with(R"("shape":[1,1,1,1,1,1,2],"data_offsets":[0,8])", 8), "at most 6"));
  EXPECT_TRUE(has(refused(safetensors_text(R"({"t":{"dtype":"F8_E4M3"}})", 0)), "F8_E4M3 cannot be read"));
  EXPECT_TRUE(has(error_of([&] { read_safetensors(dir / "none"); }), "none"));
}

TEST(Npz, IsReadAsNumpyWroteIt) {
  const Archive archive = read_npz(data_file("arrays.npz"));
  EXPECT_EQ(archive.tensors.size(), 6U);
  EXPECT_EQ(values_of(archive.tensor("plain")), (std::vector<double>{0, 0.25, 0.5, 0.75, 1, 1.25}));
  const Tensor& columns = archive.tensor("columns");
  EXPECT_EQ(columns.shape(), (Shape{2, 3, 4}));
  for (std::int64_t i = 0; i < columns.size(); ++i) EXPECT_EQ(columns.data<double>()[i], i);
  const std::vector<double> half = values_of(archive.tensor("half"));
  EXPECT_EQ(half, (std::vector<double>{1.5, -2, 0, 0x1p-24, INFINITY, 65504}));
  EXPECT_EQ(archive.tensor("scalar").shape(), Shape{});
  EXPECT_EQ(archive.tensor("empty").shape(), (Shape{0, 3}));
  EXPECT_EQ(archive.tensor("bytes").dtype(), DType::u8);
}

TEST(Npz, DamagedFilesAreRefused) {
  const TemporaryDirectory dir("npz");
  const std::string whole = file_text(data_file("arrays.npz")), file = dir / "cut.npz";
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    write_file(file, whole.substr(0, size));
    EXPECT_TRUE(has(error_of([&] { read_npz(file); }), "cut.npz")) << size;
  }
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); at += 3) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x55);
    write_file(file, flipped);
    refused += error_of([&] { read_npz(file); }) != "nothing was refused";
  }
  EXPECT_GT(refused, 100);
}

/// A shared network of a few layers, and weights for it.
struct FitCase {
  Parameters parameters;
  SharedWeights weights;
  std::vector<Tensor> targets;

  explicit FitCase(const PlanOptions& options) : weights(parameters, options) {
    const Shape shapes[] = {{6, 3, 3, 3}, {8, 6, 3, 3}, {8, 8, 3, 3}, {16, 8, 3, 3}, {5, 16}};
    for (const Shape& shape : shapes) {
      const bool conv = shape.rank() == 4;
      weights.request({.name = fmt::format("layer{}", targets.size()),
                       .kind = conv ? WeightKind::convolution : WeightKind::linear,
                       .shape = shape,
                       .fan_in = shape.size() / shape[0],
                       .norm_follows = conv});
      targets.push_back(Tensor::empty(shape, DType::f32));
    }
    weights.build();
    parameters.build();
  }
  /// The targets become the weights of other parameters (and, if `all`, coefficients), or else noise.
  void draw_targets(bool reachable, bool all) {
    const Tensor before = parameters.values().clone();
    for (const Parameters::Entry& entry : parameters.entries())
      if (all || entry.section == Section::group) draw(entry.leaf.value(), entry.name);
    parameters.values_changed();
    const NoGrad no_grad;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      draw(targets[i], fmt::format("{}", i));
      if (reachable) targets[i].copy_from(weights.use(static_cast<int>(i)).value());
    }
    parameters.values().copy_from(before);
    parameters.values_changed();
  }
  std::vector<double> fit(int rounds) {
    return fit_weights(weights, parameters, targets, {.rounds = rounds});
  }

 private:
  static void draw(const Tensor& tensor, const std::string& stream) {
    const Random random(3, stream);
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      tensor.data<float>()[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  }
};

double sum_of_squares(const std::vector<double>& errors) {
  double sum = 0;
  for (const double e : errors) sum += e * e;
  return sum;
}

TEST(Fit, FindsWhatCanBeReached) {
  for (const Combine combine : {Combine::emb, Combine::wavg, Combine::avg, Combine::rr}) {
    FitCase c({.budget = Budget::parse("60%"), .combine = combine, .templates = 3, .seed = 1});
    c.draw_targets(true, false);
    for (const double error : c.fit(0)) EXPECT_LT(error, 1e-3) << name_of(combine);
  }
  for (const Upsample upsample : {Upsample::mask, Upsample::inter, Upsample::repeat}) {
    FitCase c({.budget = Budget::parse("8%"), .upsample = upsample, .seed = 1});
    c.draw_targets(true, false);
    for (const double error : c.fit(0)) EXPECT_LT(error, 1e-3) << name_of(upsample);
  }
}

TEST(Fit, UnsharedWeightsAreTakenToTheBit) {
  FitCase c({.budget = Budget::parse("dense")});
  c.draw_targets(false, false);
  for (const double error : c.fit(8)) EXPECT_EQ(error, 0);
  for (std::size_t i = 0; i < c.targets.size(); ++i)
    EXPECT_TRUE(same_bits(c.weights.use(static_cast<int>(i)).value(), c.targets[i]));
}

TEST(Fit, NothingNearbyIsBetter) {
  FitCase c({.budget = Budget::parse("30%"), .combine = Combine::wavg, .templates = 4, .seed = 1});
  c.draw_targets(false, false);
  const double least =
      sum_of_squares(fit_weights(c.weights, c.parameters, c.targets, {.first_steps = 200, .rounds = 0}));
  for (const Parameters::Entry& entry : c.parameters.entries()) {
    if (entry.section != Section::group) continue;
    for (const float by : {0.05F, -0.05F}) {
      float& value = entry.leaf.value().data<float>()[entry.range.size / 2];
      const float before = value;
      value += by;
      c.parameters.values_changed();
      const NoGrad no_grad;
      double sum = 0;
      for (std::size_t i = 0; i < c.targets.size(); ++i) {
        const std::vector<double> w = values_of(c.weights.use(static_cast<int>(i)).value()),
                                  t = values_of(c.targets[i]);
        double off = 0, whole = 0;
        for (std::size_t k = 0; k < w.size(); ++k) off += (w[k] - t[k]) * (w[k] - t[k]), whole += t[k] * t[k];
        sum += off / whole;
      }
      EXPECT_GT(sum, least);
      value = before;
    }
  }
}

TEST(Fit, CoefficientsAndMasksMakeItBetter) {
  for (const auto& [budget, combine] :
       {std::pair("30%", Combine::emb), std::pair("30%", Combine::wavg), std::pair("8%", Combine::emb)}) {
    FitCase c({.budget = Budget::parse(budget), .combine = combine, .templates = 4, .seed = 1});
    c.draw_targets(false, false);
    const double parameters_only = sum_of_squares(c.fit(0)), all = sum_of_squares(c.fit(8));
    EXPECT_LT(all, 0.99 * parameters_only) << budget << name_of(combine);
  }
}

/// A run of one step, and what ssn eval says of its checkpoint.
struct StoredRun {
  TemporaryDirectory dir;
  std::string checkpoint;
  explicit StoredRun(const std::string& name, const Arguments& more = {}) : dir(name) {
    Arguments arguments = {"--out", dir / "run", "--stop-after", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    output_of(train, small_run(arguments));
    checkpoint = dir / "run/checkpoint.h5";
  }
};
double loss_of(const std::string& checkpoint) {
  return Json::parse(output_of(eval, {checkpoint, "--json", "--quiet", "--threads", "1"}))["test_loss"];
}
const Arguments kNetwork = {"--model", "wrn-10-1", "--data", "synthetic:1x7x6x3x50",
                            "--seed",  "5",        "--json", "--quiet"};
Json import_of(const std::string& file, const std::string& out, const Arguments& more = {}) {
  Arguments arguments = {file, out};
  arguments.insert(arguments.end(), kNetwork.begin(), kNetwork.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Json::parse(output_of(import_weights, arguments));
}

TEST(Exchange, ADenseNetworkWithTheExportedWeightsIsTheSame) {
  const StoredRun run("exchange", {"--budget", "10%", "--weights", "lean"});
  const double loss = loss_of(run.checkpoint);
  const Arguments kinds[] = {{"w.h5"},
                             {"own.h5", "--names", "own"},
                             {"w.safetensors"},
                             {"hwio.safetensors", "--layout", "hwio", "--names", "own"}};
  for (const Arguments& kind : kinds) {
    Arguments arguments = {run.checkpoint, run.dir / kind[0], "--json"};
    arguments.insert(arguments.end(), kind.begin() + 1, kind.end());
    const Json printed = Json::parse(output_of(export_weights, arguments));
    EXPECT_EQ(printed["file"], run.dir / kind[0]);
    const Json imported = import_of(run.dir / kind[0], run.dir / "dense.h5", {"--overwrite"});
    EXPECT_EQ(imported["relative_error"], 0) << kind[0];
    EXPECT_EQ(imported["layers"].size(), printed["weights"]);
    EXPECT_EQ(loss_of(run.dir / "dense.h5"), loss) << kind[0];
  }
  const Archive own = load_checkpoint(run.dir / "own.h5"), torch = load_checkpoint(run.dir / "w.h5");
  EXPECT_FALSE(own.tensors.contains("parameters/group0"));
  EXPECT_TRUE(own.attributes.contains("plan") && own.attributes.contains("config"));
  EXPECT_TRUE(same_bits(own.tensor("weights/fc"), torch.tensor("fc.weight")));
  EXPECT_TRUE(same_bits(own.tensor("parameters/bn.gain"), torch.tensor("bn1.weight")));
  EXPECT_EQ(read_safetensors(run.dir / "hwio.safetensors").tensor("weights/conv1").shape(),
            (Shape{3, 3, 1, 16}));
}

TEST(Exchange, ATrainingStartsFromWeights) {
  const StoredRun run("init", {"--budget", "dense"});
  // The same plan: nothing is fitted, and a step of no length leaves all as it is.
  output_of(train, small_run({"--budget", "dense", "--init", run.checkpoint, "--lr", "1e-30", "--stop-after",
                              "1", "--out", run.dir / "same"}));
  const Archive before = load_checkpoint(run.checkpoint),
                after = load_checkpoint(run.dir / "same/checkpoint.h5");
  EXPECT_TRUE(same_bits(before.tensor("parameters/group0"), after.tensor("parameters/group0")));
  // Another plan: with a budget for it the fit is near the weights, with less it is further off.
  const Json near = import_of(run.checkpoint, run.dir / "near.h5", {"--budget", "60%"}),
             far = import_of(run.checkpoint, run.dir / "far.h5", {"--budget", "10%"});
  EXPECT_LT(near["relative_error"], far["relative_error"]);
  EXPECT_LT(near["relative_error"], 0.9);
  EXPECT_TRUE(has(refusal(train, {"--resume", run.dir / "near.h5"}), "start one from it with --init"));
}

TEST(Exchange, OneMessageListsWhatDoesNotFit) {
  const StoredRun run("misfit");
  output_of(export_weights, {run.checkpoint, run.dir / "w.safetensors"});
  Archive archive = read_safetensors(run.dir / "w.safetensors");
  archive.tensors.erase("bn1.weight");
  archive.tensors["more"] = Tensor::zeros({2}, DType::f32);
  archive.tensors["fc.num_batches_tracked"] = Tensor::zeros({}, DType::i64);
  archive.tensors["fc.weight"] = Tensor::zeros({4, 64}, DType::f32);
  archive.tensors["conv1.weight"].fill(NAN);
  write_safetensors(run.dir / "wrong.safetensors", archive);
  const std::string message = error_of([&] { import_of(run.dir / "wrong.safetensors", run.dir / "out.h5"); });
  for (const char* part : {"missing: bn1.weight;", "not of the network: more;",
                           "fc.weight is 4x64, expected 3x64", "conv1.weight has values that are not finite"})
    EXPECT_TRUE(has(message, part));
  EXPECT_FALSE(std::filesystem::exists(run.dir / "out.h5"));
}

TEST(Exchange, ExportRefusesToReplaceAFile) {
  const StoredRun run("export_wrong");
  const std::string file = run.dir / "weights.h5";
  write_file(file, "mine");
  EXPECT_TRUE(has(refusal(export_weights, {run.checkpoint, file}), "is there already"));
  EXPECT_EQ(file_text(file), "mine");
  output_of(export_weights, {run.checkpoint, file, "--overwrite"});
  EXPECT_NE(file_text(file), "mine");
  EXPECT_TRUE(has(refusal(export_weights, {run.checkpoint, run.checkpoint, "--overwrite"}),
                  "is the checkpoint itself"));
  EXPECT_TRUE(has(error_of([&] {
                    output_of(export_weights, {run.dir / "none.h5", run.dir / "out.h5"});
                  }),
                  "none.h5"));
  EXPECT_FALSE(std::filesystem::exists(run.dir / "out.h5"));
}

}  // namespace
}  // namespace ssn::test
