// Generation of all weights of a network, forward and backward:
//   bench_generate --model wrn-28-10 --budget 36.2M --templates 8 --groups 1 --threads 2
// One call for a group's layers, a call a layer, and a plain loop a layer, beside y += a·x over the weights'
// memory, all in turns. "GB" is what layer by layer must move; "GB/s" is that over the time, so that one
// call for all can be faster than the memory; "least" is what must be moved when theta is read once.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "kernels/generate.h"
#include "layers/models/zoo.h"
#include "runtime/comm.h"
#include "runtime/options.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "ssn/shared_weights.h"

namespace ssn {
namespace {

using Layer = kernels::GeneratedLayer<float>;

struct Settings {
  std::string model = "wrn-28-10", budget = "36.2M";
  std::int64_t templates = 8, groups = 1, threads = 2, rounds = 15;
  bool json = false;
};

Settings parse(const std::vector<std::string>& arguments) {
  Settings s;
  Options options("bench_generate", "Times the generation of a network's weights.");
  options.add("model", s.model, "NAME", "network")
      .add("budget", s.budget, "SIZE", "parameters of all groups")
      .add("groups", s.groups, "P", "groups, mapped by chance", at_least(1))
      .add("templates", s.templates, "K", "templates a layer", at_least(1))
      .add("threads", s.threads, "N", "threads", at_least(1))
      .add("rounds", s.rounds, "N", "repetitions; the median counts", at_least(1))
      .add("json", s.json, "print one JSON object");
  if (!options.parse(arguments)) {
    fmt::print("{}", options.help());
    std::exit(0);
  }
  return s;
}

Plan plan_of(const Settings& s) {
  Parameters parameters;
  SharedWeights weights(parameters,
                        {.budget = Budget::parse(s.budget),
                         .mapping = {.kind = MappingKind::random, .groups = static_cast<int>(s.groups)},
                         .templates = static_cast<int>(s.templates)});
  make_network(s.model, {3, 32, 32, 10}, {weights, parameters});
  weights.build();
  return weights.plan();
}

Tensor noise(std::int64_t n) {
  const Random random(1, static_cast<std::uint64_t>(n));
  const Tensor t = Tensor::empty({n}, DType::f32);
  parallel_for(n, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      t.data<float>()[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i))) * 0.1f;
  });
  return t;
}

/// The layers of one group of a plan with memory for everything, the backward's list being the tape's: last
/// layer first. Exact weights are views, so only their gradients cost anything.
struct Workload {
  std::int64_t group_size, weights_size = 0;
  Tensor theta, theta_grad, coefficients, coefficients_grad, weights, weight_grads, elements, plain;
  std::vector<Layer> forward, backward;
  double layer_bytes[2] = {}, least_bytes[2] = {};

  Workload(const Plan& plan, const PlannedGroup& group) : group_size(group.parameters) {
    std::int64_t numbers = 0;
    for (const int i : group.layers) {
      const PlannedLayer& l = plan.layers[i];
      weights_size += (l.size() + 15) / 16 * 16;
      numbers += static_cast<std::int64_t>(l.offsets.size()) + (l.tiles - 1) * plan.options.window;
    }
    theta = noise(group_size), theta_grad = noise(group_size);
    coefficients = noise(numbers), coefficients_grad = noise(numbers);
    weights = noise(weights_size), weight_grads = noise(weights_size);
    std::int64_t weight = 0, number = 0;
    std::vector<Layer> all;
    for (const int i : group.layers) {
      const PlannedLayer& l = plan.layers[i];
      using From = Layer::Method;
      const auto templates = static_cast<int>(l.offsets.size());
      const From method = l.method == Method::exact      ? From::exact
                          : l.method == Method::upsample ? From::tiles
                                                         : From::templates;
      all.push_back({method, l.size(), std::max(templates, 1), l.offsets.data(), plan.options.window,
                     coefficients.data<float>() + number, weights.data<float>() + weight,
                     weight_grads.data<float>() + weight, coefficients_grad.data<float>() + number});
      weight += (l.size() + 15) / 16 * 16;
      number += templates + (l.tiles - 1) * plan.options.window;
    }
    backward.assign(all.rbegin(), all.rend());
    std::copy_if(all.begin(), all.end(), std::back_inserter(forward),
                 [](const Layer& l) { return l.method != Layer::Method::exact; });
    const auto need = kernels::generate_workspace<float>(cpu_queue(), backward, group_size);
    elements = Tensor::empty({need.elements}, DType::f32), plain = Tensor::empty({need.bytes}, DType::u8);
    count_bytes();
  }

  /// From the plan. Layer by layer, a tile is read from theta as a template is; tiles of one layer share it.
  void count_bytes() {
    for (const bool is_forward : {true, false}) {
      const std::int64_t times = is_forward ? 1 : 3;
      std::vector<bool> used(static_cast<std::size_t>(group_size));
      std::int64_t weights = 0, read = 0;
      for (const Layer& l : is_forward ? forward : backward) {
        const bool tiles = l.method == Layer::Method::tiles;
        weights += l.n, read += tiles ? group_size : l.n * l.templates;
        for (int k = 0; k < l.templates; ++k) {
          const auto first = used.begin() + (tiles ? 0 : l.offsets[k]);
          std::fill(first, first + (tiles ? group_size : l.n), true);
        }
      }
      const std::int64_t once = std::count(used.begin(), used.end(), true);
      layer_bytes[!is_forward] = static_cast<double>(4 * (weights + times * read));
      least_bytes[!is_forward] = static_cast<double>(4 * (weights + times * once));
    }
  }
};

/// The obvious loops, a layer at a time, as the compiler leaves them; threads share a layer.
void plain_forward(const Workload& w) {
  const float* theta = w.theta.data<float>();
  for (const Layer& l : w.forward)
    parallel_for(l.n, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        float sum = 0;
        if (l.method == Layer::Method::tiles) {
          const std::int64_t tile = i / w.group_size, p = i % w.group_size;
          sum = theta[p] * (tile ? l.coefficients[(tile - 1) * l.window + p % l.window] : 1);
        } else {
          for (int k = 0; k < l.templates; ++k)
            sum += (l.method == Layer::Method::exact ? 1 : l.coefficients[k]) * theta[l.offsets[k] + i];
        }
        static_cast<float*>(l.weight)[i] = sum;
      }
    });
}

void plain_backward(const Workload& w) {
  const float* theta = w.theta.data<float>();
  float* grad = w.theta_grad.data<float>();
  for (const Layer& l : w.backward) {
    const bool tiles = l.method == Layer::Method::tiles;
    const std::int64_t count = tiles ? (l.n + w.group_size - 1) / w.group_size : l.templates;
    for (std::int64_t k = 0; k < count; ++k) {
      const float* g = l.weight_grad + (tiles ? k * w.group_size : 0);
      const std::int64_t first = tiles ? 0 : l.offsets[k];
      const std::int64_t n = tiles ? std::min(w.group_size, l.n - k * w.group_size) : l.n;
      constexpr std::int64_t kPart = 1 << 14;
      std::vector<float> parts(static_cast<std::size_t>((n + kPart - 1) / kPart * l.window));
      const float* a = l.coefficients + (tiles ? (k - 1) * l.window : k);
      parallel_chunks(n, kPart, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
        float* sums = parts.data() + part * l.window;
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t j = tiles ? i % l.window : 0;
          const float c = l.method == Layer::Method::exact || (tiles && k == 0) ? 1 : a[j];
          sums[j] += theta[first + i] * g[i];
          grad[first + i] += c * g[i];
        }
      });
      if (l.method == Layer::Method::exact || (tiles && k == 0)) continue;
      float* da = l.coefficients_grad + (a - l.coefficients);
      for (std::size_t i = 0; i < parts.size(); ++i)
        if (tiles || i % static_cast<std::size_t>(l.window) == 0)
          da[i % static_cast<std::size_t>(l.window)] += parts[i];
    }
  }
}

void run_forward(const Workload& w, std::span<const Layer> layers) {
  kernels::generate_forward(cpu_queue(), layers, w.group_size, w.theta.data<float>(), w.plain.raw());
}
void run_backward(const Workload& w, std::span<const Layer> layers) {
  kernels::generate_backward(cpu_queue(), layers, w.group_size, w.theta.data<float>(),
                             w.theta_grad.data<float>(), w.elements.data<float>(), w.plain.raw());
}
void axpy(const Workload& w) {
  const float* x = w.weight_grads.data<float>();
  float* y = w.weights.data<float>();
  parallel_for(w.weights_size, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] += 0.5f * x[i];
  });
}

struct Row {
  const char* name;
  double bytes;
  std::function<void()> f;
  std::vector<double> seconds = {};

  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

int run(const Settings& s) {
  set_num_threads(static_cast<int>(s.threads));
  const Plan plan = plan_of(s);
  std::vector<Workload> groups;
  double bytes[2] = {}, least[2] = {}, weights = 0;
  for (const PlannedGroup& group : plan.groups) {
    const Workload& w = groups.emplace_back(plan, group);
    for (int i : {0, 1}) bytes[i] += w.layer_bytes[i], least[i] += w.least_bytes[i];
    weights += static_cast<double>(w.weights_size);
  }
  const auto all = [&](auto&& f) { return [&groups, f] { std::for_each(groups.begin(), groups.end(), f); }; };
  const auto each = [&](std::vector<Layer> Workload::*layers, auto&& f) {
    return all([layers, f](const Workload& w) {
      for (const Layer& l : w.*layers) f(w, std::span(&l, 1));
    });
  };
  std::vector<Row> rows = {
      {"forward, one call", bytes[0], all([](const Workload& w) { run_forward(w, w.forward); })},
      {"forward, a call a layer", bytes[0], each(&Workload::forward, run_forward)},
      {"forward, plain loops", bytes[0], all(plain_forward)},
      {"backward, one call", bytes[1], all([](const Workload& w) { run_backward(w, w.backward); })},
      {"backward, a call a layer", bytes[1], each(&Workload::backward, run_backward)},
      {"backward, plain loops", bytes[1], all(plain_backward)},
      {"y += a x", 12 * weights, all(axpy)},
  };
  for (std::int64_t round = 0; round <= s.rounds; ++round)
    for (Row& r : rows) {
      const auto start = std::chrono::steady_clock::now();
      r.f();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (round > 0) r.seconds.push_back(took.count());  // the first touches the memory
    }
  nlohmann::ordered_json result = {
      {"model", s.model},         {"budget", plan.budget}, {"groups", plan.groups.size()},
      {"templates", s.templates}, {"threads", s.threads},  {"least_bytes", least}};
  if (!s.json)
    fmt::print(
        "{}: {} parameters in {} group(s), K = {}, {} threads; least: forward {:.2f} GB, backward {:.2f} "
        "GB\n",
        s.model, plan.budget, plan.groups.size(), s.templates, s.threads, least[0] * 1e-9, least[1] * 1e-9);
  for (Row& r : rows) {
    const double seconds = r.median();
    const double best = r.seconds[0];  // sorted
    result["rows"].push_back(
        {{"name", r.name}, {"ms", seconds * 1e3}, {"best_ms", best * 1e3}, {"bytes", r.bytes}});
    if (!s.json)
      fmt::print("  {:<26}{:8.2f} ms (best {:.2f}) {:7.2f} GB {:7.1f} GB/s\n", r.name, seconds * 1e3,
                 best * 1e3, r.bytes * 1e-9, r.bytes / seconds * 1e-9);
  }
  if (s.json) fmt::print("{}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace ssn

int main(int argc, char** argv) {
  ssn::SoloComm comm;
  return ssn::run_ranks(comm, [&] { return ssn::run(ssn::parse({argv + 1, argv + argc})); });
}
