#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "runtime/checkpoint.h"
#include "runtime/options.h"
#include "runtime/progress.h"
#include "ssn/plan.h"
#include "tools/commands.h"
#include "tools/exchange/weights_file.h"

namespace ssn {
namespace {

using Json = nlohmann::ordered_json;

struct Summary {
  double mean = 0, deviation = 0, min = 0, max = 0;
  std::int64_t not_finite = 0;
};

Summary summary_of(const Tensor& tensor) {
  const Tensor values = tensor.to(DType::f64);
  const auto x = values.span<double>();
  Summary s;
  if (x.empty()) return s;
  for (const double v : x) s.mean += v / static_cast<double>(x.size());
  for (const double v : x) s.deviation += (v - s.mean) * (v - s.mean) / static_cast<double>(x.size());
  s.deviation = std::sqrt(s.deviation);
  // Not std::minmax: a value that is not a number must show.
  s.min = s.max = x[0];
  for (const double v : x) {
    if (!(v >= s.min)) s.min = v;
    if (!(v <= s.max)) s.max = v;
    s.not_finite += !std::isfinite(v);
  }
  return s;
}

std::vector<std::int64_t> extents(const Tensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

Json json_of(const Archive& archive) {
  Json out = {{"file", archive.path}, {"attributes", Json::object()}, {"tensors", Json::array()}};
  for (const auto& [name, value] : archive.attributes)
    std::visit([&, &name = name](const auto& v) { out["attributes"][name] = v; }, value);
  for (const auto& [name, tensor] : archive.tensors) {
    const Summary s = summary_of(tensor);
    out["tensors"].push_back({{"name", name},
                              {"dtype", name_of(tensor.dtype())},
                              {"shape", extents(tensor)},
                              {"mean", s.mean},
                              {"deviation", s.deviation},
                              {"min", s.min},
                              {"max", s.max},
                              {"not_finite", s.not_finite}});
  }
  return out;
}

std::string value_text(const Attribute& value, std::size_t indent) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          if (v.find('\n') == std::string::npos) return v;
          std::string out;
          std::istringstream lines(v);
          for (std::string line; std::getline(lines, line);)
            out += fmt::format("\n{}{}", std::string(indent + 2, ' '), line);
          return out;
        } else if constexpr (std::is_arithmetic_v<T>) {
          return fmt::format("{}", v);
        } else {
          return fmt::format("{}", fmt::join(v, ", "));
        }
      },
      value);
}

std::string tensor_text(const Tensor& tensor) {
  const Summary s = summary_of(tensor);
  return fmt::format("{:>5} {:>16} {:>11.4g} {:>11.4g} {:>11.4g} {:>11.4g}{}", name_of(tensor.dtype()),
                     tensor.shape().text(), s.mean, s.deviation, s.min, s.max,
                     s.not_finite > 0 ? fmt::format("  {} not finite", s.not_finite) : "");
}

/// Names are paths: what is above a name and was not above the one before gets a line of its own.
class Tree {
 public:
  void add(const std::string& name, const std::string& text, bool attribute) {
    std::size_t begin = 0, depth = 0;
    for (std::size_t end; (end = name.find('/', begin)) != std::string::npos; begin = end + 1, ++depth) {
      if (!above_.insert(name.substr(0, end)).second) continue;
      out_ += fmt::format("{}{}/\n", indent(depth), name.substr(begin, end - begin));
    }
    const std::string own = indent(depth) + name.substr(begin);
    out_ += attribute ? fmt::format("{} = {}\n", own, text) : fmt::format("{:<44} {}\n", own, text);
    if (!attribute) above_.insert(name);
  }
  const std::string& text() const { return out_; }

 private:
  static std::string indent(std::size_t depth) { return std::string(2 * depth, ' '); }

  std::set<std::string> above_;
  std::string out_;
};

std::string text_of(const Archive& archive) {
  std::set<std::string> names;
  for (const auto& [name, value] : archive.attributes) names.insert(name);
  for (const auto& [name, tensor] : archive.tensors) names.insert(name);
  Tree tree;
  std::int64_t elements = 0;
  for (const std::string& name : names) {
    if (const auto tensor = archive.tensors.find(name); tensor != archive.tensors.end()) {
      tree.add(name, tensor_text(tensor->second), false);
      elements += tensor->second.size();
    }
    const auto depth = static_cast<std::size_t>(std::ranges::count(name, '/'));
    if (const auto value = archive.attributes.find(name); value != archive.attributes.end())
      tree.add(name, name == "plan" ? "(see below)" : value_text(value->second, 2 * depth), true);
  }
  std::string out = fmt::format("{:<44} {:>5} {:>16} {:>11} {:>11} {:>11} {:>11}\n{}{} tensors, {} elements",
                                archive.path, "type", "shape", "mean", "deviation", "min", "max", tree.text(),
                                archive.tensors.size(), grouped(elements));
  if (const auto plan = archive.attributes.find("plan"); plan != archive.attributes.end()) {
    const auto* words = std::get_if<std::string>(&plan->second);
    check(words, "inspect", "{}: its attribute plan is not a text", archive.path);
    out += "\n\n" + plan_text(nlohmann::json::parse(*words, nullptr, false));
  }
  return out;
}

/// How a tensor differs between two files; none: its bits do not.
struct Difference {
  std::string what;        // "missing in ...", "f32 of 3x4 and f64 of 3x4", "values"
  double largest = 0;      // of values
  std::int64_t count = 0;  // of elements whose values differ
};

std::optional<Difference> difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return Difference{fmt::format("{} of {} and {} of {}", name_of(a.dtype()), a.shape().text(),
                                  name_of(b.dtype()), b.shape().text())};
  if (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0) return std::nullopt;
  const Tensor x = a.to(DType::f64), y = b.to(DType::f64);
  Difference d{"values"};
  for (std::size_t i = 0; i < x.span<double>().size(); ++i) {
    const double left = x.span<double>()[i], right = y.span<double>()[i], gap = std::abs(left - right);
    if (left == right || (std::isnan(left) && std::isnan(right))) continue;
    ++d.count;
    if (!(gap <= d.largest)) d.largest = gap;  // also where one is not a number
  }
  return d;
}

std::map<std::string, Difference> differences(const Archive& a, const Archive& b) {
  std::map<std::string, Difference> all;
  for (const auto& [name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end())
      all[name] = {"missing in " + b.path};
    else if (const auto d = difference(tensor, other->second))
      all[name] = *d;
  }
  for (const auto& [name, tensor] : b.tensors)
    if (!a.tensors.contains(name)) all[name] = {"missing in " + a.path};
  return all;
}

/// Attributes that only one has, or that differ.
std::vector<std::string> differing_attributes(const Archive& a, const Archive& b) {
  std::set<std::string> names;
  for (const Archive* archive : {&a, &b})
    for (const auto& [name, value] : archive->attributes) names.insert(name);
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const auto x = a.attributes.find(name), y = b.attributes.find(name);
    if (x == a.attributes.end() || y == b.attributes.end() || x->second != y->second) out.push_back(name);
  }
  return out;
}

int compare(Comm& comm, const Archive& a, const Archive& b, bool json) {
  const std::map<std::string, Difference> tensors = differences(a, b);
  const std::vector<std::string> attributes = differing_attributes(a, b);
  if (json) {
    Json out = {{"files", {a.path, b.path}}, {"attributes", attributes}, {"tensors", Json::array()}};
    for (const auto& [name, d] : tensors)
      out["tensors"].push_back(
          {{"name", name}, {"difference", d.what}, {"largest", d.largest}, {"elements", d.count}});
    print_result(comm, out.dump());
  } else {
    std::string out;
    for (const auto& [name, d] : tensors)
      out += fmt::format(
          "{:<44} {}\n", name,
          d.what == "values" ? fmt::format("{} values, by at most {:.4g}", d.count, d.largest) : d.what);
    for (const std::string& name : attributes) out += fmt::format("{:<44} attribute\n", name);
    print_result(comm,
                 out + fmt::format("{} tensors and {} attributes differ", tensors.size(), attributes.size()));
  }
  return tensors.empty() ? 0 : 1;
}

}  // namespace

int inspect(Comm& comm, const Arguments& arguments) {
  std::string path, other;
  bool json = false;
  Options options("ssn inspect",
                  "Shows what a checkpoint or a file of weights (HDF5, safetensors, npz) holds, or how two "
                  "differ; exit code 1: a tensor does.",
                  "ssn inspect --diff runs/mine/checkpoint.h5 runs/other/checkpoint.h5");
  options.positional("FILE", path, "the file")
      .add("diff", other, "FILE", "compare this file's tensors, by name, with the other's")
      .flag_only()
      .show_default("")
      .add("json", json, "print one JSON object")
      .flag_only();
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  if (!other.empty()) return compare(comm, read_weights(other), read_weights(path), json);
  const Archive archive = read_weights(path);
  print_result(comm, json ? json_of(archive).dump() : text_of(archive));
  return 0;
}

}  // namespace ssn
