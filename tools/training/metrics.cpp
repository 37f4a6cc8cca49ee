#include "tools/training/metrics.h"

#include <cmath>
#include <fstream>

#include "runtime/checkpoint.h"

namespace ssn {
namespace {

/// How many classes come before the label.
std::int64_t rank_of(std::span<const float> logits, std::int32_t label) {
  const float own = logits[static_cast<std::size_t>(label)];
  std::int64_t before = 0;
  for (std::size_t c = 0; c < logits.size(); ++c) {
    if (static_cast<std::int32_t>(c) == label) continue;
    const bool behind = logits[c] < own || (logits[c] == own && static_cast<std::int32_t>(c) > label);
    before += !behind;
  }
  return before;
}

}  // namespace

void Metrics::add(const Tensor& logits, const Tensor& labels, double loss_sum) {
  const Tensor z = logits.to(Device::cpu), y = labels.to(Device::cpu);
  const std::int64_t n = z.shape()[0], classes = z.shape()[1];
  sums_[0] += static_cast<double>(n);
  sums_[1] += loss_sum;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::span<const float> row(z.data<float>() + i * classes, static_cast<std::size_t>(classes));
    const std::int64_t rank = rank_of(row, y.data<std::int32_t>()[i]);
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

MetricsFile::MetricsFile(std::string path, std::int64_t lines) : path_(std::move(path)) {
  std::ifstream file(path_);
  std::string line;
  while (lines-- > 0 && std::getline(file, line)) text_ += line + "\n";
}

void MetricsFile::append(const nlohmann::ordered_json& line) {
  text_ += line.dump() + "\n";
  atomic_write_text(path_, text_);
}

}  // namespace ssn
