#include "tools/training/metrics.h"

#include <cmath>
#include <fstream>

#include "runtime/checkpoint.h"
#include "runtime/log.h"

namespace ssn {
void Metrics::add(const Tensor& ranks, double loss_sum) {
  const Tensor host = ranks.to(Device::cpu);
  sums_[0] += static_cast<double>(host.size());
  sums_[1] += loss_sum;
  for (const float rank : host.span<float>()) {
    sums_[2] += rank >= 1;
    sums_[3] += rank >= 5;
  }
}

Metrics sum_over(Comm& comm, std::span<const Metrics> mine) {
  std::vector<Metrics> all(mine.size() * static_cast<std::size_t>(comm.size()));
  const std::vector<std::byte> bytes = comm.allgather(std::as_bytes(mine));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(all.data()));
  Metrics::Sums total{};
  for (const Metrics& one : all)
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += one.sums()[i];
  Metrics sum;
  sum.set_sums(total);
  return sum;
}

nlohmann::ordered_json rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

namespace {

/// Of a line of metrics.jsonl; 0 if it is none.
std::int64_t epoch_of(const nlohmann::json& line) {
  if (!line.is_object() || !line.contains("epoch") || !line["epoch"].is_number_integer()) return 0;
  return line["epoch"].get<std::int64_t>();
}

}  // namespace

MetricsFile::MetricsFile(std::string path, const std::string& before, std::int64_t epochs)
    : path_(std::move(path)) {
  std::ifstream file(before);
  std::int64_t kept = 0, damaged = 0, last = 0;
  for (std::string text; std::getline(file, text);) {
    nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    const std::int64_t epoch = epoch_of(line);
    if (epoch <= last) {
      ++damaged;
    } else if (epoch <= epochs) {
      text_ += text + "\n";
      last_ = std::move(line);
      last = epoch;
      ++kept;
    }
  }
  if (kept < epochs)
    warn(
        "{}: of the {} epochs before the checkpoint it has {} ({} of its lines are damaged); the run goes on "
        "without the others",
        before, epochs, kept, damaged);
}

double MetricsFile::last(const char* name) const {
  const auto value = last_.find(name);
  return value != last_.end() && value->is_number() ? value->get<double>() : 0;
}

void MetricsFile::append(const nlohmann::ordered_json& line) {
  text_ += line.dump() + "\n";
  atomic_write_text(path_, text_);
}

}  // namespace ssn
