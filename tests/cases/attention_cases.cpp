#include <cmath>

#include "tests/op_case.h"

namespace ssn::test {
namespace {

struct Settings {
  std::vector<std::int32_t> lengths;
  std::int64_t queries, keys, heads, width;
  double dropout = 0;

  std::int64_t samples() const { return std::ssize(lengths); }
  std::int64_t columns() const { return heads * width; }
};

constexpr std::int64_t kFirst = 3;  // place of the first sample
const Random kRandom(11, "attention");

/// The factor of a probability, from the definition (kernels/attention.h).
double kept(const Settings& s, std::int64_t sample, std::int64_t head, std::int64_t i, std::int64_t j) {
  if (s.dropout == 0) return 1;
  const auto place = static_cast<std::uint64_t>((kFirst + sample) * s.heads + head) << 32 |
                     static_cast<std::uint64_t>(i) << 16 | static_cast<std::uint64_t>(j / 4);
  const std::uint32_t draw = philox(kRandom.seed(), kRandom.stream(), place).v[j % 4];
  return draw < s.dropout * 4294967296.0 ? 0 : 1 / (1 - s.dropout);
}

Doubles attended(const Settings& s, std::span<const Doubles> in) {
  Doubles y(in[0].size());
  const std::int64_t d = s.columns();
  for (std::int64_t sample = 0; sample < s.samples(); ++sample)
    for (std::int64_t head = 0; head < s.heads; ++head)
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const auto query = static_cast<std::size_t>((sample * s.queries + i) * d + head * s.width);
        const auto key = [&](std::int64_t j) {
          return static_cast<std::size_t>((sample * s.keys + j) * d + head * s.width);
        };
        const std::int32_t length = s.lengths[static_cast<std::size_t>(sample)];
        Doubles p;
        double most = -1e300, total = 0;
        for (std::int64_t j = 0; j < length; ++j) {
          double dot = 0;
          for (std::size_t c = 0; c < static_cast<std::size_t>(s.width); ++c)
            dot += in[0][query + c] * in[1][key(j) + c];
          p.push_back(dot / std::sqrt(static_cast<double>(s.width)));
          most = std::max(most, p.back());
        }
        for (double& v : p) total += v = std::exp(v - most);
        for (std::int64_t j = 0; j < length; ++j)
          for (std::size_t c = 0; c < static_cast<std::size_t>(s.width); ++c)
            y[query + c] +=
                kept(s, sample, head, i, j) * p[static_cast<std::size_t>(j)] / total * in[2][key(j) + c];
      }
  return y;
}

OpCase case_of(const std::string& name, const Settings& s, bool thread_invariant = true,
               bool cuda_on_host = true) {
  const Shape queries{s.samples() * s.queries, s.columns()}, keys{s.samples() * s.keys, s.columns()};
  return {.name = "attention_" + name,
          .inputs = {{queries}, {keys}, {keys}},
          .f =
              [=](std::span<const Var> in) {
                return attention(
                    in[0], in[1], in[2],
                    Tensor::of<std::int32_t>({s.samples()}, s.lengths).to(in[0].device()),
                    {.heads = s.heads, .dropout = s.dropout, .random = kRandom, .first = kFirst});
              },
          .reference = [=](std::span<const Doubles> in) { return attended(s, in); },
          .adversarial = {Domain::all_negative, Domain::equal},
          .cuda_on_host = cuda_on_host,
          .cuda_f64 = s.width <= 64,
          .thread_invariant = thread_invariant};
}

}  // namespace

std::vector<OpCase> attention_cases() {
  return {case_of("plain", {{7, 7}, 7, 7, 3, 5}), case_of("padded", {{5, 7, 1}, 7, 7, 2, 4}),
          case_of("across", {{5, 6, 2}, 3, 6, 2, 4}), case_of("dropout", {{9, 6, 10}, 10, 10, 2, 3, 0.3}),
          // Several blocks of queries on the CPU, and tiles of both sides on CUDA, where the first would take
          // long.
          case_of("long", {{130, 127, 257}, 257, 257, 2, 3, 0.1}, true, false),
          case_of("tiles", {{37, 18}, 35, 37, 1, 5, 0.2}), case_of("wide", {{31, 33}, 33, 33, 2, 64}),
          case_of("wider", {{3, 35}, 18, 35, 1, 71, 0.4}), case_of("one", {{1}, 1, 1, 1, 1}, false),
          case_of("none", {{}, 4, 4, 2, 3}, false)};
}

}  // namespace ssn::test
