#include "layers/models/outline.h"

#include <algorithm>
#include <cmath>

#include "autograd/flops.h"
#include "runtime/dry_run.h"
#include "runtime/progress.h"

namespace ssn {
namespace {

/// Takes requests down, and answers each use, which is in f32, with zeros.
class Recorder : public WeightFactory {
 public:
  int request(WeightRequest request) override {
    requests.push_back(std::move(request));
    return static_cast<int>(requests.size()) - 1;
  }
  Var use(int number, const WeightFormat& format) override {
    if (!zeros_) {
      std::int64_t largest = 0;
      for (const WeightRequest& r : requests) largest = std::max(largest, r.shape.size());
      zeros_ = Tensor::full({largest}, 0, DType::f32);
    }
    return Var::constant(zeros_.slice(0, shape_in(format, requests[static_cast<std::size_t>(number)].shape)));
  }
  std::uint64_t seed() const override { return 0; }
  std::vector<WeightRequest> requests;

 private:
  Tensor zeros_;
};

/// The fewest decimal places that make the same network as `width`, for people to read and to type.
double readable(double width, const std::function<bool(double)>& same) {
  for (double scale = 10; scale < 1e15; scale *= 10)
    if (const double short_one = std::floor(width * scale) / scale; same(short_one)) return short_one;
  return width;
}

}  // namespace

std::int64_t Outline::shareable() const {
  std::int64_t sum = 0;
  for (const WeightRequest& w : weights) sum += w.shape.size();
  return sum;
}

Outline outline(std::string_view network, const NetworkTask& task, const NetworkSize& size) {
  Recorder recorder;
  Parameters parameters;
  make_network(network, task, {recorder, parameters}, size);
  return {std::move(recorder.requests), parameters.count(Section::ordinary)};
}

NetworkInput zeros_for(const NetworkTask& task, std::int64_t n) {
  if (task.length == 0)
    return {.images = Tensor::zeros({n, task.height, task.width, task.channels}, DType::f32)};
  const std::int64_t predicted =
      n * std::max<std::int64_t>(1, std::llround(0.15 * static_cast<double>(task.length)));
  NetworkInput input{.tokens = Tensor::zeros({n, task.length}, DType::i32),
                     .lengths = Tensor::zeros({n}, DType::i32),
                     .predicted = Tensor::zeros({predicted}, DType::i32)};
  std::ranges::fill(input.lengths.span<std::int32_t>(), static_cast<std::int32_t>(task.length));
  std::int32_t row = 0;
  for (std::int32_t& p : input.predicted.span<std::int32_t>()) p = row++;
  return input;
}

double forward_flops(std::string_view network, const NetworkTask& task, const NetworkSize& size) {
  const NoGrad no_grad;
  const DryRun dry_run;
  Recorder recorder;
  Parameters parameters;
  const auto made = make_network(network, task, {recorder, parameters}, size);
  parameters.build();
  const NetworkInput input = zeros_for(task, 1);
  const FlopCounter counter;
  made->forward(input, {});
  return counter.flops();
}

NetworkSize reduced_size(std::string_view network, const NetworkTask& task,
                         std::int64_t (Outline::*count)() const, std::int64_t limit) {
  const auto parameters = [&](double width, int removed) {
    return (outline(network, task, {width, removed}).*count)();
  };
  std::int64_t least = 0;
  for (int removed = 0;; ++removed) {
    if (parameters(1, removed) <= limit) return {1, removed};
    const std::int64_t narrowest = parameters(0, removed);
    if (narrowest <= limit) {
      // The number grows with the width: halving down to neighbouring doubles finds the last width that fits.
      double fits = 0, exceeds = 1;
      for (double middle = 0.5; middle > fits && middle < exceeds; middle = (fits + exceeds) / 2)
        (parameters(middle, removed) <= limit ? fits : exceeds) = middle;
      const std::int64_t most = parameters(fits, removed);
      return {readable(fits, [&](double w) { return parameters(w, removed) == most; }), removed};
    }
    check_usage(narrowest != least, "network",
                "{} has {} parameters where it is narrowest and shortest; the budget is {}", network,
                grouped(least), grouped(limit));
    least = narrowest;
  }
}

}  // namespace ssn
