// A linear layer with few rows on the CPU, its weight generated first and multiplied then, and generated
// within the product:
//   bench_linear --threads 2
// For each size and number of templates (0: tiles under masks) both times over the rows, the most rows at
// which the fused way is the faster one, and up to how many autograd/fused_linear.cpp has it used. The
// templates lie in memory, not in the caches.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "perf/linear_workload.h"
#include "runtime/comm.h"
#include "runtime/options.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {

constexpr std::int64_t kRows[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};

/// The best of both, in turns, in milliseconds.
std::pair<double, double> times(LinearWorkload& work, const Var& x, std::int64_t rounds) {
  const auto milliseconds = [](const auto& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  double first = std::numeric_limits<double>::infinity(), fused = first;
  for (std::int64_t i = 0; i < rounds; ++i) {
    first = std::min(first, milliseconds([&] { work.generated_first(x); }));
    fused = std::min(fused, milliseconds([&] { work.fused(x); }));
  }
  return {first, fused};
}

void measure(const LinearSize& size, const Var& theta, std::int64_t rounds) {
  LinearWorkload work(size, theta);
  std::string first, fused;
  std::int64_t crossing = 0, rule = 0;
  for (const std::int64_t rows : kRows) {
    const auto [a, b] = times(work, Var::constant(uniform_noise({rows, size.in}, Device::cpu)), rounds);
    first += fmt::format(" {:7.3f}", a), fused += fmt::format(" {:7.3f}", b);
    if (b <= a) crossing = rows;
    if (fuses_linear(work.rule(), rows, DType::f32, Device::cpu)) rule = rows;
  }
  fmt::print("{:>5} x {:<5} K={}  first{}\n                  fused{}   faster up to {}, used up to {}\n",
             size.in, size.out, size.templates, first, fused, crossing, rule);
}

int run(const std::vector<std::string>& arguments) {
  std::int64_t threads = 2, rounds = 15, megabytes = 128;
  Options options("bench_linear", "Times linear layers of generated weights, both ways.");
  options.add("threads", threads, "N", "threads", at_least(1))
      .add("rounds", rounds, "N", "repetitions; the best counts", at_least(1))
      .add("theta", megabytes, "MB", "size of the group", at_least(1));
  if (!options.parse(arguments)) return fmt::print("{}", options.help()), 0;
  set_num_threads(static_cast<int>(threads));
  const NoGrad no_grad;
  const Var theta = Var::constant(uniform_noise({megabytes << 18}, Device::cpu));
  fmt::print("milliseconds, f32, {} threads; rows", threads);
  for (const std::int64_t rows : kRows) fmt::print(" {}", rows);
  fmt::print("\n");
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{640, 100},   {768, 768},  {1024, 1024},
                                                         {2048, 1000}, {768, 3072}, {3072, 768}};
  for (const auto& [in, out] : sizes)
    for (const int templates : {0, 1, 2, 4, 8}) measure({in, out, templates}, theta, rounds);
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  return ssn::run_ranks([&](ssn::Comm&) { return ssn::run({argv + 1, argv + argc}); });
}
