// Whole networks against PyTorch: a training step from given weights. tests/golden/networks has one file for
// each; tests/golden/README.md says what is in it.
#include <gtest/gtest.h>

#include <filesystem>

#include "layers/models/torch_names.h"
#include "layers/models/zoo.h"
#include "runtime/config.h"
#include "runtime/hdf5_file.h"
#include "ssn/shared_weights.h"
#include "tests/close.h"

namespace ssn::test {
namespace {

std::string directory() {
  return std::string(build::source_data_dir) + "/../tests/golden/networks/";
}

std::vector<std::string> network_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory()))
    if (entry.path().extension() == ".h5") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

NetworkTask task_of(const Hdf5File& file) {
  const auto integer = [&](const char* name) {
    return file.has_attribute("", name) ? file.attribute<std::int64_t>("", name) : 0;
  };
  return {.channels = integer("channels"),
          .height = integer("height"),
          .width = integer("width"),
          .classes = integer("classes"),
          .length = integer("length"),
          .vocabulary = integer("vocabulary")};
}

NetworkInput input_of(const Hdf5File& file, DType dtype) {
  const auto read = [&](const std::string& name) {
    return file.exists("in/" + name) ? file.read("in/" + name) : Tensor();
  };
  NetworkInput input{.tokens = read("tokens"),
                     .lengths = read("lengths"),
                     .predicted = read("predicted"),
                     .segments = read("segments")};
  if (const Tensor images = read("images")) input.images = images.to(dtype);
  return input;
}

/// A network without sharing, its values and gradients by PyTorch's names.
class NamedNetwork {
 public:
  NamedNetwork(const Hdf5File& file, DType dtype)
      : parameters(dtype), weights_(parameters, {.budget = Budget::parse("dense")}) {
    const auto name = file.attribute<std::string>("", "network");
    const NetworkSize size{file.attribute<double>("", "size_width"),
                           static_cast<int>(file.attribute<std::int64_t>("", "size_removed"))};
    network = make_network(name, task_of(file), {weights_, parameters}, size);
    weights_.build();
    parameters.build();
    for (const PlannedLayer& layer : weights_.plan().layers)
      leaves[torch_name(name, layer.name)] = {parameters.entry(fmt::format("group{}", layer.group)).leaf,
                                              layer.shape};
    for (const Parameters::Entry& e : parameters.entries())
      if (e.section != Section::group) leaves[torch_name(name, e.name)] = {e.leaf, e.shape};
    for (const Parameters::Buffer& b : parameters.buffers()) statistics[torch_name(name, b.name)] = b.tensor;
  }

  void load(const Hdf5File& file) {
    for (const auto& [name, leaf] : leaves) {
      const Tensor value = file.read("parameters/" + name);
      ASSERT_EQ(value.shape(), leaf.shape) << name;
      leaf.var.value().copy_from(value.to(parameters.dtype()).view(leaf.var.shape()));
    }
    parameters.values_changed();
  }

  void step(const Hdf5File& file) {
    const Pass pass{
        .training = !file.has_attribute("", "training") || file.attribute<std::int64_t>("", "training") != 0,
        .seed = static_cast<std::uint64_t>(file.attribute<std::int64_t>("", "seed")),
        .step = file.attribute<std::int64_t>("", "step"),
        .first = file.attribute<std::int64_t>("", "first")};
    const Tensor labels = file.read("in/labels");
    logits = network->forward(input_of(file, parameters.dtype()), pass);
    loss = cross_entropy(logits, labels, 0, 1.0 / static_cast<double>(labels.size()));
    backward(loss);
    weights_.finish_backward();
  }

  struct Leaf {
    Var var;
    Shape shape;
  };
  Parameters parameters;
  std::unique_ptr<Network> network;
  std::map<std::string, Leaf> leaves;
  std::map<std::string, Tensor> statistics;
  Var logits, loss;

 private:
  SharedWeights weights_;
};

std::vector<double> read(const Hdf5File& file, const std::string& name) {
  return values_of(file.read(name));
}

class Networks : public testing::TestWithParam<std::tuple<std::string, DType>> {};
INSTANTIATE_TEST_SUITE_P(Golden, Networks,
                         testing::Combine(testing::ValuesIn(network_files()),
                                          testing::Values(DType::f64, DType::f32)),
                         [](const auto& p) {
                           return fmt::format("{}_{}", std::get<0>(p.param), name_of(std::get<1>(p.param)));
                         });

TEST_P(Networks, TrainAsInPyTorch) {
  const auto& [name, dtype] = GetParam();
  const Hdf5File file = Hdf5File::open(directory() + name + ".h5");
  NamedNetwork ours(file, dtype);
  std::vector<std::string> names;
  for (const auto& [leaf, value] : ours.leaves) names.push_back(leaf);
  ASSERT_EQ(names, file.children("parameters"));
  ASSERT_NO_FATAL_FAILURE(ours.load(file));
  ours.step(file);

  // The files hold f32, computed in f64.
  const double tolerance = dtype == DType::f64 ? 1e-6 : 1e-4;
  EXPECT_TRUE(close(values_of(ours.logits.value()), read(file, "out/logits"), tolerance));
  EXPECT_TRUE(close(values_of(ours.loss.value()), read(file, "out/loss"), tolerance));
  for (const auto& [statistic, value] : ours.statistics)
    EXPECT_TRUE(close(values_of(value), read(file, "statistics/" + statistic), tolerance)) << statistic;
  double largest = 0;
  for (const std::string& leaf : names) largest = scale_of(read(file, "gradients/" + leaf), largest);
  for (const auto& [leaf, value] : ours.leaves) {
    const std::vector<double> want = read(file, "gradients/" + leaf);
    EXPECT_TRUE(close(values_of(value.var.grad()), want, tolerance, scale_of(want, 1e-2 * largest))) << leaf;
  }
}

}  // namespace
}  // namespace ssn::test
