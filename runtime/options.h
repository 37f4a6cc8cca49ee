#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ssn {

/// What a number may be; every number must be finite.
struct Limits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool open = false;   // min itself is not allowed
  bool below = false;  // max itself is not allowed
};
constexpr Limits at_least(double min) {
  return {.min = min};
}
constexpr Limits above(double min) {
  return {.min = min, .open = true};
}
constexpr Limits between(double min, double max) {
  return {.min = min, .max = max};
}
constexpr Limits half_open(double min, double max) {
  return {.min = min, .max = max, .below = true};
}

/// The options of one command. Each is the flag `--name` and the key `name` of the TOML file given with
/// `--config`; a flag wins over the file, the file over the default. The values live in variables of the
/// caller, which hold the defaults before parse() and the outcome after it. Wrong usage throws UsageError
/// with one message.
///
///     Options options("ssn train", "Trains a network.");
///     options.section("Training").add("epochs", epochs, "N", "passes over the training set", at_least(1));
///     if (!options.parse(arguments)) fmt::print("{}", options.help());
class Options {
 public:
  Options(std::string command, std::string summary, std::string example = "");

  /// A heading in the help for the options that follow.
  Options& section(std::string title);
  /// `unit` stands for the value in the help: N, FILE, DIR, ...
  Options& add(std::string name, std::int64_t& value, std::string unit, std::string help, Limits limits = {});
  Options& add(std::string name, double& value, std::string unit, std::string help, Limits limits = {});
  /// A text; with `choices`, one of these.
  Options& add(std::string name, std::string& value, std::string unit, std::string help,
               std::vector<std::string> choices = {});
  /// A switch: `--name` and `--no-name`; true and false in a file.
  Options& add(std::string name, bool& value, std::string help);
  /// An argument without a name, in order of declaration; all are required.
  Options& positional(std::string name, std::string& value, std::string help);
  /// The option just added is about this run alone: flag only, and not in to_toml().
  Options& flag_only();
  /// What the help says of the default of the option just added, where the value does not.
  Options& show_default(std::string text);

  /// Arguments after the command's name. False: --help was asked for, and nothing else was looked at.
  bool parse(const std::vector<std::string>& arguments);
  /// Takes the keys of a TOML text (`source` names it in errors) before the file and the flags of later calls
  /// of parse().
  void read_text(const std::string& text, const std::string& source);
  std::string help() const;
  /// Whether a flag or the file gave it.
  bool given(std::string_view name) const;
  /// Name and value, as they are now, of each option that a file may give.
  std::vector<std::pair<std::string, std::string>> values() const;
  /// The same as a file that --config takes.
  std::string to_toml() const;
  /// The command with the flags of the last parse(), but for those about this run alone, as a shell takes it.
  std::string command_line() const;

 private:
  using Value = std::variant<std::int64_t*, double*, std::string*, bool*>;
  struct Option {
    std::string name, unit, help, section, default_text;
    Value value;
    Limits limits;
    std::vector<std::string> choices;
    bool in_file = true, positional = false, given = false;
    std::string given_flag{};  // as text; empty when no flag gave it
  };

  Options& insert(Option option);
  void assign(Option& option, const std::string& text, std::string_view source);
  void check_values_follow(const std::vector<std::string>& arguments) const;
  std::vector<std::string> names(bool file_only) const;
  const Option* find(std::string_view name) const;

  std::string command_, summary_, example_, section_, config_;
  std::vector<Option> options_;
};

}  // namespace ssn
