#include <gtest/gtest.h>

#include "layers/models/zoo.h"
#include "ssn/shared_weights.h"

namespace ssn::test {
namespace {

/// The plan of the network without sharing; nothing is allocated.
Plan dense_plan(const std::string& name, const ImageTask& task) {
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

TEST(Networks, wrn_28_10_counts_to_the_last_parameter) {
  const Plan plan = dense_plan("wrn-28-10", {.channels = 3, .height = 32, .width = 32, .classes = 10});
  EXPECT_EQ(plan.original, 36'479'194);
  EXPECT_EQ(plan.shareable, 36'461'232);
  EXPECT_EQ(plan.layers.size(), 29u);
}

TEST(Networks, forward_any_image_size_and_class_count) {
  for (const std::string name : {"wrn-10-1", "resnet-20"})
    for (const ImageTask& task :
         {ImageTask{1, 8, 8, 10}, ImageTask{3, 32, 32, 7}, ImageTask{2, 13, 9, 3}, ImageTask{1, 1, 1, 2}}) {
      Parameters parameters;
      SharedWeights weights(parameters, {.budget = Budget::parse("20%")});
      const auto network = make_network(name, task, {weights, parameters});
      weights.build();
      parameters.build();
      const Var x = Var::constant(Tensor::full({2, task.height, task.width, task.channels}, 0.5, DType::f32));
      EXPECT_EQ(network->forward(x, true).shape(), (Shape{2, task.classes})) << name;
    }
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
  EXPECT_NE(message("wrn--1").find("there is no network"), std::string::npos);
  EXPECT_NE(message("").find("there is no network"), std::string::npos);
  EXPECT_NE(message("wrn-28-99999999999").find("there is no network"), std::string::npos);
}

}  // namespace
}  // namespace ssn::test
