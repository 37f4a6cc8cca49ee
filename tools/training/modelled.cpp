#include "tools/training/modelled.h"

#include <utility>

#include "autograd/flops.h"
#include "layers/models/outline.h"
#include "runtime/dry_run.h"

namespace ssn {
namespace {

/// Of all weights that are not parameters themselves.
double generated_bytes(const Plan& plan) {
  double elements = 0;
  for (const PlannedLayer& layer : plan.layers)
    if (layer.method != Method::exact) elements += static_cast<double>(layer.size());
  return 4 * elements;
}

/// FLOPs of a step until each sum starts, as `after`, until all have started, and of the forward pass.
struct CountedStep {
  SumSchedule schedule;
  double forward = 0;
};

/// Buckets are gathered in the order in which the gradient is completed, wherever it lies.
CountedStep count_step(const TrainConfig& config, Model& model) {
  CountedStep step;
  const ReducerOptions options = reducer_options(config);
  const std::int64_t bucket = options.overlap ? options.bucket / 4 : model.plan().total;
  const std::int64_t wire = config.wire == "bf16" ? 2 : 4;  // bytes
  std::int64_t gathered = 0, rest = model.plan().total;
  const FlopCounter counter;
  const auto start = [&] {
    step.schedule.sums.push_back({counter.flops(), wire * gathered});
    rest -= std::exchange(gathered, 0);
  };
  model.weights.on_complete(
      [&](const Completion& c) {
        gathered += c.range.size;
        if (gathered >= bucket) start();
      },
      bucket);
  const NetworkInput input = zeros_for(task_of(model.input()), config.batch);
  const Var logits = model.network->forward(input, {.training = true, .half = model.half});
  const Tensor labels = Tensor::zeros({logits.shape()[0]}, DType::i32);
  const Var loss = cross_entropy(logits, labels, config.label_smoothing, 1);
  step.forward = counter.flops();
  backward(loss);
  model.weights.finish_backward();
  model.weights.on_complete({});
  step.schedule.backward_end = counter.flops();
  gathered = rest;
  if (rest > 0) start();
  return step;
}

}  // namespace

SumSchedule modelled_schedule(const TrainConfig& config, const InputShape& input,
                              const Processor& processor) {
  const DryRun dry_run;
  Model model(config, input, Device::cpu);
  SoloComm solo;
  model.build(solo);
  auto [schedule, forward] = count_step(config, model);
  const double generation = 2 * generated_bytes(model.plan()) / processor.bandwidth;
  const double backward = schedule.backward_end - forward;
  const auto seconds = [&, forward = forward](double flops) {
    return flops / processor.flops + generation * (1 + (flops - forward) / backward);
  };
  for (SumStart& sum : schedule.sums) sum.after = seconds(sum.after);
  schedule.backward_end = seconds(schedule.backward_end);
  // The optimizer reads the gradient and reads and writes the value and its states.
  const int states = states_of(value_named<OptimizerKind>(config.optimizer));
  schedule.tail = 4.0 * (3 + 2 * states) * static_cast<double>(model.plan().total) / processor.bandwidth;
  return schedule;
}

std::vector<Profile> model_steps(const TrainConfig& config, const std::vector<std::string>& budgets,
                                 const InputShape& input, const Processor& processor) {
  std::vector<Profile> profiles;
  for (const std::string& budget : budgets) {
    const TrainConfig own = with_budget(config, budget);
    Profile p{.budget = budget, .parameters = Model(own, input, Device::cpu).plan().total};
    p.schedule = modelled_schedule(own, input, processor);
    for (const SumStart& sum : p.schedule.sums) p.bytes += sum.bytes;
    const double step = p.schedule.backward_end + p.schedule.tail;
    p.step = {step, step, step};
    p.turns = {step};
    p.phases.resize(kPhaseNames.size());
    profiles.push_back(std::move(p));
  }
  return profiles;
}

}  // namespace ssn
