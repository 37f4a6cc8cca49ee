#include "runtime/options.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/error.h"

namespace ssn {
namespace {

struct Trial {
  std::int64_t epochs = 60;
  double rate = 0.1;
  double momentum = 0.9;
  std::string budget = "25%", weights = "eager", out, data;
  bool flip = true, overwrite = false;
};

Options make(Trial& run) {
  Options options("ssn try", "Tries things.", "ssn try --epochs 3");
  options.section("Training")
      .add("epochs", run.epochs, "N", "passes over the training set", at_least(1))
      .add("lr", run.rate, "X", "learning rate", above(0))
      .add("momentum", run.momentum, "X", "of the optimizer", half_open(0, 1))
      .add("budget", run.budget, "B", "parameters in the groups")
      .add("weights", run.weights, "W", "policy", {"eager", "lean"})
      .add("flip", run.flip, "flip images");
  options.section("Run").add("out", run.out, "DIR", "where to").flag_only();
  options.add("overwrite", run.overwrite, "replace a run").flag_only();
  return options;
}

// The message of the UsageError that `f` throws.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refusal_of(const std::vector<std::string>& arguments) {
  Trial run;
  return refusal([&] { make(run).parse(arguments); });
}

struct File {
  explicit File(const std::string& text)
      : path(std::filesystem::temp_directory_path() /
             ("options_test_" + std::to_string(getpid()) + ".toml")) {
    std::ofstream(path) << text;
  }
  ~File() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

std::string refusal_of_file(const std::string& text) {
  File file(text);
  return refusal_of({"--config", file.path.string()});
}

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

TEST(Options, DefaultsStandWithoutFlags) {
  Trial run;
  Options options = make(run);
  EXPECT_TRUE(options.parse({}));
  EXPECT_EQ(run.epochs, 60);
  EXPECT_EQ(run.rate, 0.1);
  EXPECT_TRUE(run.flip);
  EXPECT_FALSE(options.given("epochs"));
}

TEST(Options, FlagsSetValues) {
  Trial run;
  Options options = make(run);
  EXPECT_TRUE(options.parse(
      {"--epochs", "3", "--lr=0.25", "--no-flip", "--overwrite", "--weights", "lean", "--out", "a b"}));
  EXPECT_EQ(run.epochs, 3);
  EXPECT_EQ(run.rate, 0.25);
  EXPECT_FALSE(run.flip);
  EXPECT_TRUE(run.overwrite);
  EXPECT_EQ(run.weights, "lean");
  EXPECT_EQ(run.out, "a b");
  EXPECT_TRUE(options.given("epochs"));
  EXPECT_FALSE(options.given("budget"));
}

TEST(Options, LastFlagWins) {
  Trial run;
  make(run).parse({"--epochs", "3", "--no-flip", "--epochs", "4", "--flip"});
  EXPECT_EQ(run.epochs, 4);
  EXPECT_TRUE(run.flip);
}

TEST(Options, FileUnderFlags) {
  File file("epochs = 7\nlr = 1\nbudget = 97000\nflip = false\nweights = 'lean'\n");
  Trial run;
  Options options = make(run);
  options.parse({"--lr", "0.5", "--config", file.path.string()});
  EXPECT_EQ(run.epochs, 7);
  EXPECT_EQ(run.rate, 0.5);
  EXPECT_EQ(run.budget, "97000");
  EXPECT_FALSE(run.flip);
  EXPECT_EQ(run.weights, "lean");
  EXPECT_TRUE(options.given("epochs"));
}

TEST(Options, TextUnderFileUnderFlags) {
  File file("lr = 2\n");
  Trial run;
  Options options = make(run);
  options.read_text("epochs = 7\nlr = 1\nbudget = '9K'\n", "a checkpoint");
  options.parse({"--budget", "8K", "--config", file.path.string()});
  EXPECT_EQ(run.epochs, 7);
  EXPECT_EQ(run.rate, 2);
  EXPECT_EQ(run.budget, "8K");
  EXPECT_TRUE(options.given("epochs"));
  EXPECT_TRUE(has(refusal([&] { options.read_text("epoch = 1", "a checkpoint"); }),
                  "a checkpoint: unknown key 'epoch'"));
}

TEST(Options, WrongFlagsAreNamed) {
  EXPECT_TRUE(has(refusal_of({"--epoch", "3"}), "unknown flag --epoch; did you mean --epochs?"));
  EXPECT_TRUE(has(refusal_of({"--epoch=3"}), "unknown flag --epoch; did you mean --epochs?"));
  EXPECT_TRUE(has(refusal_of({"--zzzzzzzzzz"}), "unknown flag --zzzzzzzzzz ("));
  EXPECT_TRUE(has(refusal_of({"stray"}), "unexpected argument 'stray'"));
  EXPECT_TRUE(has(refusal_of({"--epochs"}), "--epochs needs a value (N), found nothing after it"));
  EXPECT_TRUE(has(refusal_of({"--out", "--epochs", "3"}), "--out needs a value (DIR), found --epochs"));
}

TEST(Options, WrongValuesAreNamed) {
  EXPECT_TRUE(
      has(refusal_of({"--epochs", "many"}), "--epochs: expected a whole number of at least 1, found 'many'"));
  EXPECT_TRUE(has(refusal_of({"--epochs", "3.5"}), "found '3.5'"));
  EXPECT_TRUE(has(refusal_of({"--epochs", "0"}), "found '0'"));
  EXPECT_TRUE(has(refusal_of({"--epochs", "-1"}), "found '-1'"));
  EXPECT_TRUE(has(refusal_of({"--epochs", "99999999999999999999"}), "found '99999999999999999999'"));
  EXPECT_TRUE(has(refusal_of({"--epochs", ""}), "--epochs"));
  EXPECT_TRUE(has(refusal_of({"--lr", "0"}), "--lr: expected a number above 0, found '0'"));
  EXPECT_TRUE(has(refusal_of({"--lr", "nan"}), "found 'nan'"));
  EXPECT_TRUE(has(refusal_of({"--lr", "inf"}), "found 'inf'"));
  EXPECT_TRUE(has(refusal_of({"--momentum", "1"}),
                  "--momentum: expected a number of at least 0 and below 1, found '1'"));
  EXPECT_TRUE(has(refusal_of({"--budget", "\xff"}), "--budget: expected text in UTF-8"));
  EXPECT_TRUE(has(refusal_of({"--weights", "eagre"}),
                  "expected one of eager, lean, found 'eagre'; did you mean eager?"));
  EXPECT_TRUE(has(refusal_of({"--flip=maybe"}), "--flip"));
}

TEST(Options, WrongFilesAreNamed) {
  EXPECT_TRUE(has(refusal_of_file("\nepoch = 3\n"), "unknown key 'epoch' (line 2); did you mean epochs?"));
  EXPECT_TRUE(has(refusal_of_file("epochs = '3'\n"),
                  "epochs (line 1): expected a number of at least 1, found \"3\""));
  EXPECT_TRUE(has(refusal_of_file("epochs = 3.5\n"), "found '3.5'"));
  EXPECT_TRUE(has(refusal_of_file("epochs = true\n"), "epochs"));
  EXPECT_TRUE(has(refusal_of_file("flip = 1\n"), "flip (line 1): expected true or false, found '1'"));
  EXPECT_TRUE(has(refusal_of_file("weights = true\n"), "expected a text in quotes, found true"));
  EXPECT_TRUE(has(refusal_of_file("epochs = [3]\n"), "found an array"));
  EXPECT_TRUE(has(refusal_of_file("[epochs]\nn = 3\n"), "found a table"));
  EXPECT_TRUE(has(refusal_of_file("epochs = 1979-05-27\n"), "found a date"));
  EXPECT_TRUE(has(refusal_of_file("epochs = 3\nepochs = 4\n"), "line 2"));
  EXPECT_TRUE(has(refusal_of_file("epochs 3\n"), "line 1"));
  EXPECT_TRUE(has(refusal_of_file("overwrite = true\n"), "unknown key 'overwrite'"));
  EXPECT_TRUE(has(refusal_of({"--config", "/nonexistent/run.toml"}), "/nonexistent/run.toml: No such file"));
  const File pipe("");
  std::filesystem::remove(pipe.path);
  ASSERT_EQ(mkfifo(pipe.path.c_str(), 0600), 0);
  EXPECT_TRUE(has(refusal_of({"--config", pipe.path.string()}), "it is not a file"));
}

TEST(Options, WritesWhatItReads) {
  Trial run;
  run.rate = 0.1;
  run.budget = "a \"quoted\" \\ text\twith\x01 controls";
  run.epochs = 9;
  File file(make(run).to_toml());
  Trial again;
  Options options = make(again);
  options.parse({"--config", file.path.string()});
  EXPECT_EQ(again.rate, run.rate);
  EXPECT_EQ(again.budget, run.budget);
  EXPECT_EQ(again.epochs, run.epochs);
  EXPECT_EQ(options.to_toml(), make(run).to_toml());
  EXPECT_EQ(options.to_toml().find("out"), std::string::npos);
}

TEST(Options, TheCommandLineCanBeTypedAgain) {
  Trial run;
  Options options = make(run);
  options.parse({"--budget", "it's a quarter", "--out", "elsewhere", "--epochs", "7", "--no-flip"});
  EXPECT_EQ(options.command_line(), "ssn try --epochs 7 --budget 'it'\\''s a quarter' --no-flip");
}

TEST(Options, HelpShowsUnitsDefaultsAndExample) {
  Trial run;
  Options options = make(run);
  EXPECT_FALSE(options.parse({"--epochs", "wrong", "--help"}));
  const std::string help = options.help();
  EXPECT_TRUE(has(help, "--epochs N"));
  EXPECT_TRUE(has(help, "[60]"));
  EXPECT_TRUE(has(help, "example: ssn try --epochs 3"));
  EXPECT_TRUE(has(help, "Training:"));
  EXPECT_TRUE(has(help, "eager, lean"));
}

TEST(Options, PositionalArgumentsAreRequired) {
  Trial run;
  auto parse = [&](const std::vector<std::string>& arguments) {
    std::string file;
    Options options("ssn inspect", "Shows a file.");
    options.positional("FILE", file, "a checkpoint").add("data", run.data, "D", "data");
    options.parse(arguments);
    return file;
  };
  EXPECT_EQ(parse({"x.h5"}), "x.h5");
  EXPECT_EQ(parse({"--data", "d", "x.h5"}), "x.h5");
  EXPECT_TRUE(has(refusal([&] { parse({}); }), "ssn inspect needs FILE: a checkpoint"));
  EXPECT_TRUE(has(refusal([&] { parse({"a", "b"}); }), "unexpected argument 'b'"));
}

}  // namespace
}  // namespace ssn
