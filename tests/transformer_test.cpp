// Transformers: gradients under a shared budget, and what must not matter to them: padding, where a sample
// lies in the batch, recomputation.
#include "layers/models/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "layers/models/zoo.h"
#include "ssn/shared_weights.h"
#include "tests/close.h"
#include "tests/small_network.h"

namespace ssn::test {
namespace {

constexpr std::int64_t kLength = 6, kVocabulary = 11;

Tensor integers(const Shape& shape, std::vector<std::int32_t> values) {
  return Tensor::of<std::int32_t>(shape, values);
}
NetworkInput two_samples() {
  return {.tokens = integers({2, 5}, {3, 10, 0, 7, 7, 1, 2, 3, 0, 0}),
          .lengths = integers({2}, {5, 3}),
          .predicted = integers({3}, {1, 4, 7}),
          .segments = integers({2, 5}, {0, 0, 1, 1, 1, 0, 1, 1, 0, 0})};
}
Pass training() {
  return {.training = true, .seed = 3, .step = 4, .first = 6};
}

class TinyNetwork {
 public:
  TinyNetwork(const std::string& name, const std::string& budget, MappingKind mapping,
              WeightPolicy policy = WeightPolicy::eager, DType dtype = DType::f32)
      : parameters(dtype), weights(parameters, options(budget, mapping), policy) {
    network = make_network(name, {.length = kLength, .vocabulary = kVocabulary}, {weights, parameters},
                           {.width = 1.0 / 16});
    weights.build();
    parameters.build();
  }
  std::vector<double> logits(const NetworkInput& input, const Pass& pass) const {
    const NoGrad no_grad;
    return values_of(network->forward(input, pass).value());
  }

  Parameters parameters;
  SharedWeights weights;
  std::unique_ptr<Network> network;

 private:
  static PlanOptions options(const std::string& budget, MappingKind mapping) {
    PlanOptions o{.budget = Budget::parse(budget), .embedding = 5, .seed = 2};
    o.mapping.kind = mapping;
    return o;
  }
};

void expect_slopes(TinyNetwork& f) {
  const Random draws(4, "cotangent");
  std::vector<double> cotangent(3 * kVocabulary);
  for (std::size_t i = 0; i < cotangent.size(); ++i) cotangent[i] = draws.normal(i);
  const Var y = f.network->forward(two_samples(), training());
  const Tensor gy = Tensor::of<double>({3, kVocabulary}, cotangent);
  backward({&y, 1}, {&gy, 1});
  f.weights.finish_backward();
  const auto value_at = [&](double& theta, double value) {
    theta = value;
    f.parameters.values_changed();
    const auto z = f.logits(two_samples(), training());
    return std::inner_product(z.begin(), z.end(), cotangent.begin(), 0.0);
  };
  double* const values = f.parameters.values().data<double>();
  const double* const gradients = f.parameters.gradients().data<double>();
  double largest = 0;
  for (const Parameters::Entry& e : f.parameters.entries()) {
    const std::int64_t stride = std::max<std::int64_t>(1, e.range.size / 7);
    for (std::int64_t i = e.range.first; i < e.range.first + e.range.size; i += stride) {
      const double start = values[i], h = 1e-5;
      const double slope = (value_at(values[i], start + h) - value_at(values[i], start - h)) / (2 * h);
      value_at(values[i], start);
      largest = std::max(largest, std::abs(slope));
      ASSERT_NEAR(gradients[i], slope, 1e-6 * (1 + std::abs(slope)))
          << e.name << "[" << i - e.range.first << "]";
    }
  }
  EXPECT_GT(largest, 0.1);
}

TEST(Transformers, gradients_are_slopes_under_shared_budgets) {
  const OneThread one_thread;
  for (const WeightPolicy policy : {WeightPolicy::lean, WeightPolicy::eager}) {
    TinyNetwork bert("bert-2-128", "700", MappingKind::single, policy, DType::f64);
    expect_slopes(bert);
    TinyNetwork albert("albert-2-128", "largest", MappingKind::albert, policy, DType::f64);
    expect_slopes(albert);
  }
}

TEST(Transformers, padding_does_not_matter) {
  const TinyNetwork f("bert-2-128", "dense", MappingKind::single);
  NetworkInput input = two_samples();
  const auto before = f.logits(input, {});
  input.tokens = integers({2, 5}, {3, 10, 0, 7, 7, 1, 2, 3, 9, 4});
  EXPECT_EQ(f.logits(input, {}), before);
  input.tokens = integers({2, 5}, {3, 10, 0, 7, 7, 1, 2, 5, 0, 0});
  EXPECT_NE(f.logits(input, {}), before);
}

TEST(Transformers, parts_of_a_batch_drop_what_the_whole_does) {
  const TinyNetwork f("bert-2-128", "dense", MappingKind::single);
  const auto whole = f.logits(two_samples(), training());
  Pass pass = training();
  const NetworkInput second{.tokens = integers({1, 5}, {1, 2, 3, 0, 0}),
                            .lengths = integers({1}, {3}),
                            .predicted = integers({1}, {2}),
                            .segments = integers({1, 5}, {0, 1, 1, 0, 0})};
  pass.first += 1;
  const std::vector<double> want(whole.end() - kVocabulary, whole.end());
  EXPECT_TRUE(close(f.logits(second, pass), want, 1e-5));
  pass.first += 1;
  EXPECT_FALSE(close(f.logits(second, pass), want, 1e-5));
}

TEST(Transformers, recomputed_layers_give_the_same_bits) {
  TinyNetwork f("albert-2-128", "700", MappingKind::single);
  const auto gradients = [&](const Pass& pass) {
    f.parameters.zero_gradients();
    const Var y = f.network->forward(two_samples(), pass);
    backward(cross_entropy(y, integers({3}, {1, 10, 4}), 0, 1));
    f.weights.finish_backward();
    return f.parameters.gradients().clone();
  };
  Pass pass = training();
  const Tensor kept = gradients(pass);
  pass.recompute = [](std::string_view segment) { return segment == "encoder.layer.1"; };
  EXPECT_TRUE(same_bits(gradients(pass), kept));
}

TEST(Transformers, start_as_bert_does) {
  TinyNetwork dense("bert-2-128", "dense", MappingKind::single);
  for (const Parameters::Entry& e : dense.parameters.entries()) {
    double squares = 0;
    for (const double v : values_of(e.leaf.value())) squares += v * v / static_cast<double>(e.range.size);
    const bool table = e.name.starts_with("embeddings.") && !e.name.starts_with("embeddings.norm");
    if (e.section == Section::group || table) {
      EXPECT_NEAR(std::sqrt(squares), 0.02, 0.01) << e.name;
      EXPECT_TRUE(e.decay) << e.name;
    } else {
      EXPECT_EQ(squares, e.name.ends_with("gain") ? 1 : 0) << e.name;
      EXPECT_FALSE(e.decay) << e.name;
    }
  }
}

TEST(Transformers, wrong_input_is_an_error) {
  const TinyNetwork f("bert-2-128", "dense", MappingKind::single);
  const auto message = [&](const NetworkInput& input) -> std::string {
    try {
      f.logits(input, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  NetworkInput input = two_samples();
  input.tokens = integers({2, 5}, {3, 11, 0, 7, 7, 1, 2, 3, 0, 0});
  EXPECT_NE(message(input).find("id 1 is 11; it must be in 0 to 10"), std::string::npos) << message(input);
  input = two_samples();
  input.lengths = integers({2}, {5, 6});
  EXPECT_NE(message(input).find("length 1 is 6; it must be in 1 to 5"), std::string::npos) << message(input);
  input = two_samples();
  input.tokens = integers({1, 7}, {0, 0, 0, 0, 0, 0, 0});
  input.segments = {};
  EXPECT_NE(message(input).find("id 6 is 6; it must be in 0 to 5"), std::string::npos) << message(input);
  input.tokens = {};
  EXPECT_NE(message(input).find("needs tokens"), std::string::npos) << message(input);
  input = two_samples();
  input.predicted = {};
  EXPECT_NE(message(input).find("to be predicted"), std::string::npos) << message(input);
}

}  // namespace
}  // namespace ssn::test
