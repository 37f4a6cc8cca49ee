#include "runtime/options.h"

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/error.h"
#include "runtime/text.h"

namespace ssn {
namespace {

constexpr std::size_t kHelpColumn = 30, kHelpWidth = 110;

/// "; did you mean x?", or nothing when no candidate is near.
std::string hint(std::string_view word, const std::vector<std::string>& candidates,
                 std::string_view prefix = "") {
  const std::string near = nearest_name(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, near);
}

std::string expected_number(std::string_view kind, const Limits& limits) {
  const bool low = std::isfinite(limits.min), high = std::isfinite(limits.max);
  if (low && high)
    return fmt::format("{} {} {} and {} {}", kind, limits.open ? "above" : "of at least", limits.min,
                       limits.below ? "below" : "at most", limits.max);
  if (low) return fmt::format("{} {} {}", kind, limits.open ? "above" : "of at least", limits.min);
  if (high) return fmt::format("{} of at most {}", kind, limits.max);
  return std::string(kind);
}

bool within(double value, const Limits& limits) {
  return std::isfinite(value) && (limits.open ? value > limits.min : value >= limits.min) &&
         (limits.below ? value < limits.max : value <= limits.max);
}

template <class T>
bool read_number(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

/// A value of the file as the text a flag would have.
std::string text_of(const toml::node& node, bool quoted) {
  if (const auto* text = node.as_string()) return quoted ? fmt::format("\"{}\"", text->get()) : text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return node.is_table() ? "a table" : node.is_array() ? "an array" : "a date or time";
}

/// A line a time, each from `column` on; the first is there already, but for a blank.
std::string wrapped(const std::string& text, std::size_t column) {
  std::string out;
  std::size_t at = column;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (at > column && at + 1 + word.size() > kHelpWidth) {
      out += fmt::format("\n{:<{}}", "", column - 1);
      at = column;
    }
    out += " " + word;
    at += 1 + word.size();
  }
  return out + "\n";
}

/// One word of a shell.
std::string shell_text(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string toml_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (control) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + '"';
}

std::string text_of_file(const std::string& path) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);  // first: opening a pipe would wait
  std::ifstream file;
  if (regular) file.open(path);
  check_usage(file.is_open(), "options", "--config: cannot read {}: {}", path,
              error     ? error.message()
              : regular ? std::strerror(errno)
                        : "it is not a file");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Options::Options(std::string command, std::string summary, std::string example)
    : command_(std::move(command)),
      summary_(std::move(summary)),
      example_(std::move(example)),
      section_("Options") {
  add("config", config_, "FILE", "TOML file whose keys are the names of these flags; flags win").flag_only();
}

Options& Options::section(std::string title) {
  section_ = std::move(title);
  return *this;
}

Options& Options::insert(Option option) {
  check(find(option.name) == nullptr, "options", "{} declares --{} twice", command_, option.name);
  option.section = section_;
  std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (!std::is_same_v<T, bool>) option.default_text = fmt::format("{}", *value);
        if constexpr (std::is_same_v<T, bool>) option.default_text = *value ? "on" : "";
      },
      option.value);
  options_.push_back(std::move(option));
  return *this;
}

Options& Options::add(std::string name, std::int64_t& value, std::string unit, std::string help,
                      Limits limits) {
  return insert({.name = std::move(name),
                 .unit = std::move(unit),
                 .help = std::move(help),
                 .value = &value,
                 .limits = limits});
}
Options& Options::add(std::string name, double& value, std::string unit, std::string help, Limits limits) {
  return insert({.name = std::move(name),
                 .unit = std::move(unit),
                 .help = std::move(help),
                 .value = &value,
                 .limits = limits});
}
Options& Options::add(std::string name, std::string& value, std::string unit, std::string help,
                      std::vector<std::string> choices) {
  return insert({.name = std::move(name),
                 .unit = std::move(unit),
                 .help = std::move(help),
                 .value = &value,
                 .choices = std::move(choices)});
}
Options& Options::add(std::string name, bool& value, std::string help) {
  return insert({.name = std::move(name), .unit = {}, .help = std::move(help), .value = &value});
}
Options& Options::positional(std::string name, std::string& value, std::string help) {
  add(std::move(name), value, "", std::move(help));
  options_.back().positional = true;
  return flag_only();
}
Options& Options::show_default(std::string text) {
  options_.back().default_text = std::move(text);
  return *this;
}
Options& Options::flag_only() {
  options_.back().in_file = false;
  return *this;
}

const Options::Option* Options::find(std::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::vector<std::string> Options::names(bool file_only) const {
  std::vector<std::string> out;
  for (const Option& option : options_) {
    if (!option.positional && (option.in_file || !file_only)) out.push_back(option.name);
  }
  return out;
}

bool Options::given(std::string_view name) const {
  const Option* option = find(name);
  check(option != nullptr, "options", "{} has no option {}", command_, name);
  return option->given;
}

void Options::assign(Option& option, const std::string& text, std::string_view source) {
  auto refuse = [&](const std::string& expected) {
    fail_usage("options", "{}: expected {}, found '{}'", source, expected, text);
  };
  if (auto* whole = std::get_if<std::int64_t*>(&option.value)) {
    std::int64_t number = 0;
    if (!read_number(text, number) || !within(static_cast<double>(number), option.limits)) {
      refuse(expected_number("a whole number", option.limits));
    }
    **whole = number;
  } else if (auto* real = std::get_if<double*>(&option.value)) {
    double number = 0;
    if (!read_number(text, number) || !within(number, option.limits))
      refuse(expected_number("a number", option.limits));
    **real = number;
  } else if (auto* truth = std::get_if<bool*>(&option.value)) {
    if (text != "true" && text != "false") refuse("true or false");
    **truth = text == "true";
  } else {
    check_usage(is_utf8(text), "options",
                "{}: expected text in UTF-8, found other bytes: for a path, rename it or make a link to it",
                source);
    const auto& choices = option.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
      fail_usage("options", "{}: expected one of {}, found '{}'{}", source, joined(choices), text,
                 hint(text, choices));
    }
    *std::get<std::string*>(option.value) = text;
  }
  option.given = true;
}

void Options::read_text(const std::string& text, const std::string& source) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    fail_usage("options", "{}: {} (line {}, column {})", source, error.description(), begin.line,
               begin.column);
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const Option* known = find(name);
    check_usage(known != nullptr && known->in_file, "options", "{}: unknown key '{}' (line {}){}", source,
                name, node.source().begin.line, hint(name, names(true)));
    Option& option = options_[static_cast<std::size_t>(known - options_.data())];
    const bool text = std::holds_alternative<std::string*>(option.value);
    const bool fits = text ? node.is_string() || node.is_number() : !node.is_string();
    const std::string place = fmt::format("{}: {} (line {})", source, name, node.source().begin.line);
    // A text may be given as a number (budget = 4000000), never a number as a text.
    check_usage(fits && node.is_value() && !node.is_date() && !node.is_time() && !node.is_date_time(),
                "options", "{}: expected {}, found {}", place,
                text                                          ? "a text in quotes"
                : std::holds_alternative<bool*>(option.value) ? std::string("true or false")
                                                              : expected_number("a number", option.limits),
                text_of(node, true));
    assign(option, text_of(node, false), place);
  }
}

void Options::check_values_follow(const std::vector<std::string>& arguments) const {
  auto named = [&](std::size_t i) -> const Option* {
    const bool flag = i < arguments.size() && arguments[i].starts_with("--");
    const Option* option = flag ? find(std::string_view(arguments[i]).substr(2)) : nullptr;
    return option != nullptr && !option->positional ? option : nullptr;
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Option* option = named(i);
    if (option == nullptr || std::holds_alternative<bool*>(option->value)) continue;
    const bool last = i + 1 == arguments.size();
    check_usage(!last && named(i + 1) == nullptr, "options",
                "--{} needs a value ({}), found {} (see {} --help)", option->name, option->unit,
                last ? "nothing after it" : arguments[i + 1], command_);
    ++i;
  }
}

bool Options::parse(const std::vector<std::string>& arguments) {
  if (std::find_if(arguments.begin(), arguments.end(), [](auto& a) { return a == "--help" || a == "-h"; }) !=
      arguments.end()) {
    return false;
  }
  check_values_follow(arguments);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (Option& option : options_) {
    const std::string flag = option.positional ? option.name : "--" + option.name;
    if (std::holds_alternative<bool*>(option.value)) {
      app.add_flag(flag + ",!--no-" + option.name, option.given_flag)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      app.add_option(flag, option.given_flag)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them last first
  } catch (const CLI::ParseError& error) {
    fail_usage("options", "{} (see {} --help)", error.what(), command_);
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    const std::string flag = extras[0].substr(0, extras[0].find('='));
    check_usage(flag.starts_with("-"), "options", "unexpected argument '{}' (see {} --help)", extras[0],
                command_);
    const std::string word = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    fail_usage("options", "unknown flag {}{} (see {} --help)", flag, hint(word, names(false), "--"),
               command_);
  }
  for (Option& option : options_) {
    if (option.name == "config" && app.count("--config") > 0)
      read_text(text_of_file(option.given_flag), option.given_flag);
  }
  for (Option& option : options_) {
    if (!app.count(option.positional ? option.name : "--" + option.name)) {
      check_usage(!option.positional, "options", "{} needs {}: {} (see {} --help)", command_, option.name,
                  option.help, command_);
      continue;
    }
    assign(option, option.given_flag, option.positional ? option.name : "--" + option.name);
  }
  return true;
}

std::string Options::help() const {
  std::string arguments, out;
  for (const Option& option : options_) {
    if (option.positional) arguments += " " + option.name;
  }
  out = fmt::format("{}\n\nusage: {}{} [options]\n", summary_, command_, arguments);
  if (!example_.empty()) out += fmt::format("example: {}\n", example_);
  std::string section;
  for (const Option& option : options_) {
    if (option.section != section && !option.positional)
      out += fmt::format("\n{}:\n", section = option.section);
    std::string left =
        option.positional ? option.name : "--" + option.name + (option.unit.empty() ? "" : " " + option.unit);
    std::string right = option.help;
    if (!option.choices.empty()) right += fmt::format(": {}", joined(option.choices));
    if (!option.default_text.empty()) right += fmt::format(" [{}]", option.default_text);
    out += fmt::format("  {:<{}}", left, kHelpColumn - 3);
    if (left.size() > kHelpColumn - 4) out += fmt::format("\n{:<{}}", "", kHelpColumn - 1);
    out += wrapped(right, kHelpColumn);
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Options::values() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Option& option : options_)
    if (option.in_file)
      std::visit([&](const auto* value) { all.emplace_back(option.name, fmt::format("{}", *value)); },
                 option.value);
  return all;
}

std::string Options::command_line() const {
  std::string out = command_;
  for (const Option& option : options_) {
    if (option.given_flag.empty() || (!option.in_file && option.name != "config")) continue;
    if (std::holds_alternative<bool*>(option.value))
      out += fmt::format(" --{}{}", option.given_flag == "true" ? "" : "no-", option.name);
    else
      out += fmt::format(" --{} {}", option.name, shell_text(option.given_flag));
  }
  return out;
}

std::string Options::to_toml() const {
  std::string out = fmt::format("# {} --config FILE\n", command_), section;
  for (const Option& option : options_) {
    if (!option.in_file) continue;
    if (option.section != section) out += fmt::format("\n# {}\n", section = option.section);
    std::visit(
        [&](const auto* value) {
          using T = std::remove_const_t<std::remove_pointer_t<decltype(value)>>;
          if constexpr (std::is_same_v<T, std::string>) {
            out += fmt::format("{} = {}\n", option.name, toml_text(*value));
          } else {
            out += fmt::format("{} = {}\n", option.name, *value);
          }
        },
        option.value);
  }
  return out;
}

}  // namespace ssn
