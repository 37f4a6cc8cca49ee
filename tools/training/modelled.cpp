#include "tools/training/modelled.h"

#include "autograd/flops.h"
#include "layers/models/outline.h"
#include "runtime/dry_run.h"

namespace ssn {
namespace {

/// Calls back with the bytes of every sum that is started.
class NotingComm : public SoloComm {
 public:
  std::function<void(std::int64_t)> note;

 protected:
  void sum(std::int64_t, void*, std::int64_t count, DType dtype) override {
    note(count * static_cast<std::int64_t>(size_of(dtype)));
  }
};

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

CountedStep count_step(const TrainConfig& config, Model& model, NotingComm& comm) {
  CountedStep step;
  Reducer reducer(comm, model.parameters, reducer_options(config));
  model.weights.on_complete([&](const Completion& c) { reducer.complete(c.range); }, reducer.least_part());
  const FlopCounter counter;
  comm.note = [&](std::int64_t bytes) { step.schedule.sums.push_back({counter.flops(), bytes}); };
  const NetworkInput input = zeros_for(task_of(model.input()), config.batch);
  const Var logits = model.network->forward(input, {.training = true, .half = model.half});
  const Tensor labels = Tensor::zeros({logits.shape()[0]}, DType::i32);
  const Var loss = cross_entropy(logits, labels, config.label_smoothing, 1);
  step.forward = counter.flops();
  backward(loss);
  model.weights.finish_backward();
  step.schedule.backward_end = counter.flops();
  reducer.finish();
  model.weights.on_complete({});
  return step;
}

}  // namespace

SumSchedule modelled_schedule(const TrainConfig& config, const InputShape& input,
                              const Processor& processor) {
  const DryRun dry_run;
  Model model(config, input, Device::cpu);
  NotingComm comm;
  comm.note = [](std::int64_t) {};
  model.build(comm);
  auto [schedule, forward] = count_step(config, model, comm);
  const double generation = 2 * generated_bytes(model.plan()) / processor.bandwidth;
  const double backward = schedule.backward_end - forward;
  const auto seconds = [&](double flops) {
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
