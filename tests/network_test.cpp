#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "autograd/flops.h"
#include "layers/models/outline.h"
#include "ssn/shared_weights.h"

namespace ssn::test {
namespace {

/// The plan of the network without sharing; nothing is allocated.
Plan dense_plan(const std::string& name, const NetworkTask& task) {
  Parameters parameters;
  SharedWeights weights(parameters, {.budget = Budget::parse("dense")});
  const auto network = make_network(name, task, {weights, parameters});
  weights.build();
  return weights.plan();
}

struct Published {
  const char* name;
  std::int64_t classes;
  double millions;  // as published: rounded to `decimals` in millions
  int decimals;
};

TEST(Networks, have_the_published_number_of_parameters) {
  const Published table[] = {
      // Zagoruyko and Komodakis, Wide Residual Networks (2016), table 4 (CIFAR-10)
      {"wrn-40-1", 10, 0.6, 1},
      {"wrn-40-2", 10, 2.2, 1},
      {"wrn-40-4", 10, 8.9, 1},
      {"wrn-28-10", 10, 36.5, 1},
      {"wrn-22-8", 10, 17.2, 1},
      {"wrn-16-8", 10, 11.0, 1},
      {"wrn-16-10", 10, 17.1, 1},
      // He et al., Deep Residual Learning (2016), table 6 (CIFAR-10)
      {"resnet-20", 10, 0.27, 2},
      {"resnet-32", 10, 0.46, 2},
      {"resnet-44", 10, 0.66, 2},
      {"resnet-56", 10, 0.85, 2},
      {"resnet-110", 10, 1.7, 1},
  };
  for (const Published& p : table) {
    const Plan plan = dense_plan(p.name, {.channels = 3, .height = 32, .width = 32, .classes = p.classes});
    EXPECT_EQ(fmt::format("{:.{}f}", static_cast<double>(plan.original) / 1e6, p.decimals),
              fmt::format("{:.{}f}", p.millions, p.decimals))
        << p.name << " has " << plan.original;
    EXPECT_EQ(plan.total, plan.original) << p.name;
    EXPECT_EQ(plan.budget, plan.shareable) << p.name;
  }
}

struct Counted {
  const char* name;
  std::int64_t side, classes, parameters;
};

TEST(Networks, count_to_the_last_parameter_what_others_count) {
  const Counted table[] = {
      // torchvision 0.14's models
      {"resnet-18", 224, 1000, 11'689'512},
      {"resnet-34", 224, 1000, 21'797'672},
      {"resnet-50", 224, 1000, 25'557'032},
      {"resnet-101", 224, 1000, 44'549'160},
      {"wide-resnet-50-2", 224, 1000, 68'883'240},
      {"densenet-121", 224, 1000, 7'978'856},
      {"densenet-161", 224, 1000, 28'681'000},
      {"densenet-169", 224, 1000, 14'149'480},
      {"densenet-201", 224, 1000, 20'013'928},
      {"efficientnet-b0", 224, 1000, 5'288'548},
      {"efficientnet-b1", 240, 1000, 7'794'184},
      {"efficientnet-b2", 260, 1000, 9'109'994},
      {"efficientnet-b3", 300, 1000, 12'233'232},
      {"efficientnet-b4", 380, 1000, 19'341'616},
      {"efficientnet-b5", 456, 1000, 30'389'784},
      {"efficientnet-b6", 528, 1000, 43'040'704},
      {"efficientnet-b7", 600, 1000, 66'347'960},
      // torchvision's DenseNet class with a 3×3 stem; published as 25.6 and 0.8 million
      {"densenet-190-40", 32, 10, 25'624'430},
      {"densenet-100-12", 32, 10, 769'162},
      // The code that came with Shapeshifter Networks (Plummer et al., 2022): three 3×3 convolutions to 32,
      // 32 and 64 channels for torchvision's 7×7 stem
      {"wrn-50-2", 224, 1000, 68'902'472},
  };
  for (const Counted& c : table)
    EXPECT_EQ(dense_plan(c.name, {3, c.side, c.side, c.classes}).original, c.parameters) << c.name;
}

TEST(Networks, wrn_28_10_counts_to_the_last_parameter) {
  const Plan plan = dense_plan("wrn-28-10", {.channels = 3, .height = 32, .width = 32, .classes = 10});
  EXPECT_EQ(plan.original, 36'479'194);
  EXPECT_EQ(plan.shareable, 36'461'232);
  EXPECT_EQ(plan.layers.size(), 29u);
}

TEST(Networks, wrn_50_2_asks_in_the_order_of_its_mapping) {
  const Plan plan = dense_plan("wrn-50-2", {.channels = 3, .height = 224, .width = 224, .classes = 1000});
  ASSERT_EQ(plan.layers.size(), 56u);
  const char* first[] = {"stem.conv1",     "stem.conv2",     "stem.conv3",     "layer1.0.shortcut",
                         "layer1.0.conv1", "layer1.0.conv2", "layer1.0.conv3", "layer1.1.conv1"};
  for (std::size_t i = 0; i < std::size(first); ++i) EXPECT_EQ(plan.layers[i].name, first[i]);
  EXPECT_EQ(plan.layers[55].name, "fc");
  EXPECT_EQ(plan.layers[5].shape, (Shape{128, 128, 3, 3}));
}

TEST(Networks, wrn_50_2_trains_on_a_small_image) {
  const NetworkTask task{3, 40, 33, 5};
  Parameters parameters;
  SharedWeights weights(parameters, {.budget = Budget::parse("dense")});
  const auto network = make_network("wrn-50-2", task, {weights, parameters}, {.width = 0.07});
  weights.build();
  parameters.build();
  Tensor x = Tensor::empty({3, 40, 33, 3}, DType::f32);
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(std::sin(0.7 * i));
  Tensor labels = Tensor::empty({3}, DType::i32);
  for (int i = 0; i < 3; ++i) labels.data<std::int32_t>()[i] = i;
  const Var logits = network->forward({.images = x}, {.training = true});
  ASSERT_EQ(logits.shape(), (Shape{3, 5}));
  backward(cross_entropy(logits, labels, 0, 1));
  weights.finish_backward();
  for (const Parameters::Entry& entry : parameters.entries()) {
    double sum = 0;
    const Tensor gradient = entry.leaf.grad();
    for (const float g : gradient.span<float>()) sum += std::abs(g);
    EXPECT_TRUE(std::isfinite(sum)) << entry.name;
    // A block's last gain starts at 0, so nothing passes to what is before it yet.
    const bool stem_or_classifier = entry.name.starts_with("stem") || entry.name.starts_with("fc");
    EXPECT_TRUE(sum > 0 || !(stem_or_classifier || entry.name.ends_with("bn3.gain"))) << entry.name;
  }
}

std::int64_t trained(const std::string& name, const NetworkTask& task, const PlanOptions& options) {
  Parameters parameters;
  SharedWeights weights(parameters, options);
  const auto network = make_network(name, task, {weights, parameters});
  weights.build();
  return weights.plan().total;
}

// The published BERT models (Devlin et al., 2019: 110M and 340M) have 109,482,240 and 335,141,888 parameters
// with a pooler (w² + w) and without the head (w² + w, a norm of 2w and a bias for each of 30,522 tokens),
// which ours has instead. As counted by PyTorch for bert-base-uncased and bert-large-uncased.
TEST(Networks, bert_counts_to_the_last_parameter) {
  const NetworkTask task{.length = 512, .vocabulary = 30'522};
  const auto encoder_and_pooler = [&](const std::string& name, std::int64_t w) {
    return dense_plan(name, task).original - (2 * w + task.vocabulary);
  };
  EXPECT_EQ(encoder_and_pooler("bert-base", 768), 109'482'240);
  EXPECT_EQ(encoder_and_pooler("bert-large", 1024), 335'141'888);
  const Plan plan = dense_plan("bert-base", task);
  EXPECT_EQ(plan.original, 109'514'298);
  // 12 layers of 4 w² and 2 · 4 w², and the head's w²
  EXPECT_EQ(plan.shareable, 12 * 12 * 768 * 768 + 768 * 768);
  EXPECT_EQ(plan.layers.size(), 12u * 6 + 1);
  EXPECT_EQ(plan.layers[0].name, "encoder.layer.0.attention.query");
  EXPECT_EQ(plan.layers[72].name, "head.dense");
}

// Lan et al. (2020), table 1: ALBERT base 12M, large 18M; 11,683,584 and 17,683,968 counted by PyTorch for
// the models with a pooler (w² + w) and without the head. Our layers share their weights, but each has its
// biases (4 w, 4 w, w) and norms (4 w) for itself, all but one layer's of which the published models do not
// have. Head: 128 w + 128, a norm of 2 · 128 and a bias for each of 30,000 tokens.
TEST(Networks, albert_counts_to_the_last_parameter) {
  const NetworkTask task{.length = 512, .vocabulary = 30'000};
  const auto published = [&](const std::string& name, std::int64_t w, std::int64_t layers) {
    PlanOptions options{.budget = Budget::parse("largest")};
    options.mapping.kind = MappingKind::albert;
    const std::int64_t ours = trained(name, task, options), head = 128 * w + 128 + 2 * 128 + task.vocabulary;
    return ours - (layers - 1) * 13 * w - head + w * w + w;
  };
  EXPECT_EQ(published("albert-base", 768, 12), 11'683'584);
  EXPECT_EQ(published("albert-large", 1024, 24), 17'683'968);
}

TEST(Networks, transformers_that_are_not) {
  const auto message = [](const std::string& name, const NetworkTask& task) -> std::string {
    try {
      dense_plan(name, task);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  const NetworkTask text{.length = 8, .vocabulary = 20}, images{1, 8, 8, 10};
  EXPECT_NE(message("bert-2-100", text).find("a multiple of 64, found 100"), std::string::npos);
  EXPECT_NE(message("bert-2-128", images).find("bert-2-128 reads text"), std::string::npos);
  EXPECT_NE(message("wrn-10-1", text).find("wrn-10-1 reads images"), std::string::npos);
  EXPECT_NE(message("bert-bse", text).find("did you mean 'bert-base'"), std::string::npos);
}

// Zagoruyko and Komodakis (2016), table 9 and He et al. (2016), section 4.2; multiply-adds.
TEST(Networks, take_the_known_number_of_flops) {
  const NetworkTask cifar{3, 32, 32, 10};
  EXPECT_EQ(forward_flops("resnet-20", cifar) / 2, 40'551'040);  // published as 41 million
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NEAR(forward_flops("wrn-28-10", cifar) / 2, 5.2e9, 0.06e9);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", static_cast<int>(1000 * took.count()));
  // By hand: stride 2 on an odd image, a classifier.
  const Tensor x = Tensor::full({2, 5, 7, 3}, 0, DType::f32), w = Tensor::full({4, 3, 3, 3}, 0, DType::f32);
  const FlopCounter outer;
  {
    const FlopCounter inner;
    conv2d(Var::constant(x), Var::constant(w), {.stride = {2, 2}, .padding = {1, 1}});
    EXPECT_EQ(inner.flops(), 2.0 * 2 * 3 * 4 * 4 * 27);
  }
  linear(Var::constant(Tensor::full({5, 3}, 0, DType::f32)),
         Var::constant(Tensor::full({7, 3}, 0, DType::f32)));
  EXPECT_EQ(outer.flops(), 2.0 * 2 * 3 * 4 * 4 * 27 + 2 * 5 * 7 * 3);
}

TEST(Networks, reduced_to_the_largest_size_that_fits) {
  const NetworkTask task{3, 32, 32, 10};
  for (const std::string name :
       {"wrn-10-1", "wrn-22-3", "resnet-32", "resnet-18", "wrn-50-2", "densenet-22-12"})
    for (const auto count : {&Outline::shareable, &Outline::original}) {
      const auto at = [&](const NetworkSize& size) { return (outline(name, task, size).*count)(); };
      // Every width at which some count of channels changes, and so every network there is.
      std::set<std::int64_t> channels;
      for (const WeightRequest& w : outline(name, task).weights) channels.insert(w.shape[0]);
      std::set<double> widths = {0, 1};
      for (const std::int64_t c : channels)
        if (c <= 256)
          for (std::int64_t k = 2; k <= c; ++k)
            widths.insert((static_cast<double>(2 * k - 1) / static_cast<double>(2 * c)) + 1e-9);
      const std::int64_t full = at({});
      for (const double share : {1.5, 1.0, 0.75, 0.31, 0.1, 0.02, 0.004}) {
        const auto limit = static_cast<std::int64_t>(share * static_cast<double>(full));
        if (limit < at({0, 100})) continue;
        const NetworkSize size = reduced_size(name, task, count, limit);
        EXPECT_LE(at(size), limit) << name;
        EXPECT_TRUE(size.removed == 0 || at({0, size.removed - 1}) > limit) << name;
        EXPECT_TRUE(share < 1 || (size.width == 1 && size.removed == 0)) << name;
        for (const double w : widths) {
          const std::int64_t other = at({w, size.removed});
          EXPECT_TRUE(other > limit || other <= at(size)) << name << ' ' << w << ' ' << size.width;
        }
      }
    }
}

TEST(Networks, shortened_only_where_narrowing_is_not_enough) {
  const NetworkTask task{1, 9, 9, 3};
  const std::int64_t narrowest = outline("resnet-32", task, {0, 0}).shareable();
  EXPECT_EQ(reduced_size("resnet-32", task, &Outline::shareable, narrowest).removed, 0);
  const NetworkSize shorter = reduced_size("resnet-32", task, &Outline::shareable, narrowest - 1);
  EXPECT_EQ(shorter.removed, 1);
  const std::int64_t least = outline("resnet-32", task, {0, 4}).shareable();
  EXPECT_EQ(reduced_size("resnet-32", task, &Outline::shareable, least).removed, 4);
  try {
    reduced_size("resnet-32", task, &Outline::shareable, least - 1);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find(fmt::format("has {} parameters", least)), std::string::npos)
        << e.what();
  }
}

TEST(Networks, reduced_ones_run) {
  for (const std::string name :
       {"wrn-16-2", "resnet-20", "resnet-10", "wrn-50-2", "densenet-22-12", "efficientnet-b0"})
    for (const NetworkSize& size : {NetworkSize{0, 100}, NetworkSize{0.03, 0}, NetworkSize{0.3, 1}}) {
      Parameters parameters;
      SharedWeights weights(parameters, {.budget = Budget::parse("dense")});
      const auto network = make_network(name, {2, 13, 9, 3}, {weights, parameters}, size);
      weights.build();
      parameters.build();
      const Tensor x = Tensor::full({2, 13, 9, 2}, 0.5, DType::f32);
      EXPECT_EQ(network->forward({.images = x}, {.training = true}).shape(), (Shape{2, 3}))
          << name << ' ' << size.width;
    }
}

TEST(Networks, forward_any_image_size_and_class_count) {
  for (const std::string name : {"wrn-10-1", "resnet-20", "resnet-10", "efficientnet-b0"})
    for (const NetworkTask& task : {NetworkTask{1, 8, 8, 10}, NetworkTask{3, 32, 32, 7},
                                    NetworkTask{2, 13, 9, 3}, NetworkTask{1, 1, 1, 2}}) {
      Parameters parameters;
      SharedWeights weights(parameters, {.budget = Budget::parse("20%")});
      const auto network = make_network(name, task, {weights, parameters});
      weights.build();
      parameters.build();
      const Tensor x = Tensor::full({2, task.height, task.width, task.channels}, 0.5, DType::f32);
      EXPECT_EQ(network->forward({.images = x}, {.training = true}).shape(), (Shape{2, task.classes}))
          << name;
    }
}

TEST(Networks, images_too_small_for_a_network_are_refused) {
  dense_plan("densenet-22-12", {3, 4, 4, 10});
  EXPECT_THROW(dense_plan("densenet-22-12", {3, 4, 3, 10}), UsageError);
  EXPECT_THROW(dense_plan("densenet-121", {3, 7, 32, 10}), UsageError);
}

TEST(Networks, unknown_names_say_what_is_known) {
  const auto message = [](const std::string& name) -> std::string {
    try {
      dense_plan(name, {.channels = 3, .height = 32, .width = 32, .classes = 10});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message("wrn-28-1o").find("did you mean 'wrn-28-10'"), std::string::npos) << message("wrn-28-1o");
  EXPECT_NE(message("resnet-21").find("resnet-20"), std::string::npos) << message("resnet-21");
  EXPECT_NE(message("wrn-17-1").find("6n + 4"), std::string::npos) << message("wrn-17-1");
  EXPECT_NE(message("densenet-101-12").find("6n + 4"), std::string::npos) << message("densenet-101-12");
  EXPECT_NE(message("efficientnet-b8").find("efficientnet-b"), std::string::npos);
  EXPECT_NE(message("resnet-19").find("resnet-1"), std::string::npos);
  EXPECT_NE(message("wrn--1").find("there is no network"), std::string::npos);
  EXPECT_NE(message("").find("there is no network"), std::string::npos);
  EXPECT_NE(message("wrn-28-99999999999").find("there is no network"), std::string::npos);
}

}  // namespace
}  // namespace ssn::test
