#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint.h"
#include "runtime/options.h"
#include "runtime/progress.h"
#include "tools/commands.h"

namespace ssn {
namespace {

struct Summary {
  double mean = 0, deviation = 0, min = 0, max = 0;
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
  }
  return s;
}

nlohmann::ordered_json json_of(const Archive& archive, const std::string& path) {
  nlohmann::ordered_json out = {{"checkpoint", path}, {"program_version", archive.program_version}};
  for (const auto& [name, value] : archive.attributes) {
    std::visit([&](const auto& v) { out["attributes"][name] = v; }, value);
  }
  for (const auto& [name, tensor] : archive.tensors) {
    const Summary s = summary_of(tensor);
    out["tensors"].push_back(
        {{"name", name},
         {"dtype", name_of(tensor.dtype())},
         {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
         {"mean", s.mean},
         {"deviation", s.deviation},
         {"min", s.min},
         {"max", s.max}});
  }
  return out;
}

std::string text_of(const Archive& archive, const std::string& path) {
  std::string out = fmt::format("{}, written by version {}\n\n", path, archive.program_version);
  for (const auto& [name, value] : archive.attributes) {
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::string>) {
            const bool lines = v.find('\n') != std::string::npos;
            out += name == "plan" ? "" : fmt::format("{}: {}{}\n", name, lines ? "\n" : "", v);
          } else if constexpr (std::is_arithmetic_v<T>) {
            out += fmt::format("{}: {}\n", name, v);
          } else {
            out += fmt::format("{}: {}\n", name, fmt::join(v, ", "));
          }
        },
        value);
  }
  out += fmt::format("\n{:<56} {:>5} {:>18} {:>11} {:>11} {:>11} {:>11}\n", "tensor", "type", "shape", "mean",
                     "deviation", "min", "max");
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : archive.tensors) {
    const Summary s = summary_of(tensor);
    out += fmt::format("{:<56} {:>5} {:>18} {:>11.4g} {:>11.4g} {:>11.4g} {:>11.4g}\n", name,
                       name_of(tensor.dtype()), tensor.shape().text(), s.mean, s.deviation, s.min, s.max);
    elements += tensor.size();
  }
  return out + fmt::format("{} tensors, {} elements", archive.tensors.size(), grouped(elements));
}

}  // namespace

int inspect(Comm& comm, const Arguments& arguments) {
  std::string path;
  bool json = false;
  Options options("ssn inspect", "Shows what a checkpoint holds.", "ssn inspect runs/mine/checkpoint.h5");
  options.positional("FILE", path, "the checkpoint").add("json", json, "print one JSON object").flag_only();
  if (!options.parse(arguments)) return print_result(comm, options.help()), 0;
  const Archive archive = load_checkpoint(path);
  print_result(comm, json ? json_of(archive, path).dump() : text_of(archive, path));
  return 0;
}

}  // namespace ssn
