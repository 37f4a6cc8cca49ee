// The networks that the method is compared with, and the mapping files that come with it.
#include "tools/training/baseline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/config.h"
#include "tests/training_run.h"
#include "tools/training/task.h"

namespace ssn::test {
namespace {

constexpr NetworkTask kTask{3, 32, 32, 100};

TrainConfig config_of(const std::string& baseline, const std::string& budget) {
  TrainConfig config;
  config.model = "wrn-28-10";
  config.baseline = baseline;
  config.budget = budget;
  return config;
}

std::string usage_error_of(const TrainConfig& config) {
  try {
    setting(config, kTask);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}
void expect_error(const TrainConfig& config, std::initializer_list<const char*> parts) {
  const std::string message = usage_error_of(config);
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
}

TEST(Baseline, reduced_counts_what_the_budget_covers) {
  const Outline full = outline("wrn-28-10", kTask);
  for (const std::string budget : {"4M", "25%", "3.3%", "500K", "2x"})
    for (const std::string count : {"groups", "total"}) {
      TrainConfig config = config_of("reduced", budget);
      config.count = count;
      const Setting s = setting(config, kTask);
      ASSERT_TRUE(s.reduction);
      EXPECT_EQ(s.reduction->original, full.original());
      EXPECT_EQ(s.reduction->shareable, full.shareable());
      const Model model(config, {{3, 32, 32}, 100}, Device::cpu);
      const Plan& plan = model.plan();
      EXPECT_EQ(plan.total, plan.original);
      const std::int64_t limit =
          Budget::parse(budget).resolve(count == "total" ? full.original() : full.shareable());
      const std::int64_t counted = count == "total" ? plan.total : plan.shareable;
      EXPECT_LE(counted, limit);
      EXPECT_GT(counted, std::min(full.shareable(), limit) * 95 / 100)
          << budget << ' ' << s.reduction->size.width;
      EXPECT_EQ(model.plan_json()["reduced"]["width"], s.reduction->size.width);
    }
  EXPECT_EQ(setting(config_of("reduced", "1x"), kTask).reduction->size.width, 1);
  EXPECT_FALSE(
      Model(config_of("none", "4M"), {{3, 32, 32}, 100}, Device::cpu).plan_json().contains("reduced"));
}

TEST(Baseline, reduced_says_the_least_possible) {
  const std::int64_t least = outline("wrn-28-10", kTask, {0, 3}).shareable();
  expect_error(config_of("reduced", fmt::format("{}", least - 1)),
               {fmt::format("has {} parameters", least).c_str()});
  EXPECT_EQ(setting(config_of("reduced", fmt::format("{}", least)), kTask).reduction->size.removed, 3);
}

TEST(Baseline, swrn_has_a_bank_for_each_shape) {
  const Setting s = setting(config_of("swrn", "50%"), kTask);
  EXPECT_FALSE(s.reduction);
  EXPECT_EQ(s.plan.mapping.kind, MappingKind::shape);
  EXPECT_EQ(s.plan.combine, Combine::wavg);
  TrainConfig spelt = config_of("none", "50%");
  spelt.mapping = "shape";
  spelt.combine = "wavg";
  const InputShape input{{3, 32, 32}, 100};
  EXPECT_EQ(to_json(Model(config_of("swrn", "50%"), input, Device::cpu).plan()),
            to_json(Model(spelt, input, Device::cpu).plan()));
}

TEST(Baseline, swrn_refuses_what_its_banks_do_not_fit_into) {
  for (const std::string count : {"groups", "total"}) {
    TrainConfig config = config_of("swrn", "1");
    config.count = count;
    const std::string message = usage_error_of(config);
    const std::string before = "budget of ";
    ASSERT_NE(message.find(before), std::string::npos) << message;
    std::string least = message.substr(message.find(before) + before.size());
    least.resize(least.find(' '));
    std::erase(least, ',');
    const std::int64_t number = std::stoll(least);
    EXPECT_GT(number, 7'000'000);
    EXPECT_LT(number, 8'000'000);
    config.budget = fmt::format("{}", number - 1);
    EXPECT_NE(usage_error_of(config), "");
    config.budget = fmt::format("{}", number);
    const Setting s = setting(config, kTask);
    const Outline o = outline(config.model, kTask);
    for (const PlannedLayer& l : make_plan(o.weights, o.ordinary, s.plan).layers)
      EXPECT_NE(l.method, Method::upsample) << l.name;
  }
  EXPECT_EQ(usage_error_of(config_of("swrn", "largest")), "");
}

TEST(Baseline, flags_that_contradict_it_are_refused) {
  expect_error(config_of("reduced", "dense"), {"--baseline reduced", "--budget dense"});
  expect_error(config_of("swrn", "dense"), {"--baseline swrn", "--budget dense"});
  expect_error(config_of("reduced", "largest"), {"--budget largest"});
  for (const char* baseline : {"reduced", "swrn"}) {
    TrainConfig config = config_of(baseline, "50%");
    config.mapping = "type";
    expect_error(config, {baseline, "--mapping type"});
    config = config_of(baseline, "50%");
    config.groups = 3;
    expect_error(config, {baseline, "--groups 3"});
  }
  TrainConfig config = config_of("swrn", "50%");
  config.combine = "avg";
  expect_error(config, {"--combine avg", "wavg"});
  config = config_of("reduced", "50%");
  config.mapping = "shape";
  expect_error(config, {"--mapping shape"});
}

TEST(Baseline, reduced_network_is_trained_measured_and_resumed) {
  SoloComm comm;
  const TemporaryDirectory directory("baseline");
  const std::string run = directory / "run";
  const auto output = [&](auto command, const Arguments& arguments) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(command(comm, arguments), 0);
    return nlohmann::json::parse(testing::internal::GetCapturedStdout());
  };
  const auto trained =
      output(train, small_run({"--baseline", "reduced", "--out", run, "--json", "--stop-after", "5"}));
  EXPECT_LT(trained["parameters"]["shareable"].get<int>(), 80000);
  const auto resumed = output(train, {"--resume", run, "--json", "--quiet"});
  const auto measured = output(eval, {run + "/checkpoint.h5", "--quiet", "--json"});
  EXPECT_EQ(measured["test_loss"], resumed["test_loss"]);
}

TEST(MappingFiles, give_the_papers_numbers_of_groups) {
  const struct {
    const char *model, *file, *input;
    std::size_t groups;
  } cases[] = {{"wrn-28-10", "wrn-28-10-manual.json", "3x32x32", 14},
               {"wrn-50-2", "wrn-50-2-manual.json", "3x64x64", 32}};
  for (const auto& c : cases) {
    const std::string path = fmt::format("{}/../ssn/mappings/{}", build::source_data_dir, c.file);
    SoloComm comm;
    testing::internal::CaptureStdout();
    plan(comm, {"--model", c.model, "--input", c.input, "--mapping", path, "--json"});
    const auto json = nlohmann::json::parse(testing::internal::GetCapturedStdout());
    EXPECT_EQ(json["groups"].size(), c.groups) << path;
    EXPECT_GT(json["flops"]["network_forward_image"], 0);
    EXPECT_NE(file_text(path).find("inferred"), std::string::npos);
  }
}

}  // namespace
}  // namespace ssn::test
