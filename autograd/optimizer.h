#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/parameters.h"
#include "kernels/optimizer.h"
#include "runtime/names.h"

namespace ssn {

/// How parameters follow from gradients; kernels/optimizer.h has the formulas.
enum class OptimizerKind : std::uint8_t { sgd, adam, adamw, lamb, rmsprop };
template <>
struct Names<OptimizerKind> {
  static constexpr std::string_view what = "optimizer",
                                    values[] = {"sgd", "adam", "adamw", "lamb", "rmsprop"};
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;  // sgd, rmsprop; in [0, 1)
  bool nesterov = true;   // sgd
  double beta1 = 0.9;     // adam, adamw, lamb: of the mean of gradients; in [0, 1)
  double beta2 = 0.999;   // all but sgd: of the mean of squared gradients; in [0, 1)
  double epsilon = 1e-8;  // all but sgd: what keeps the division by its root finite; above 0
  double decay = 5e-4;    // of the parameters that ask for it
};

/// As the optimizer was published: sgd as for wide residual networks (Zagoruyko and Komodakis 2016, section
/// 3), Adam (Kingma and Ba 2015, Algorithm 1), AdamW with PyTorch's decay, LAMB as for BERT (You et al. 2020,
/// section 4), RMSProp as for EfficientNet (Tan and Le 2019, section 5.2).
OptimizerOptions usual_options(OptimizerKind kind);
/// Numbers that it keeps for each parameter.
constexpr int states_of(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? 1 : 2;
}

/// What is done with the gradient before a step.
struct StepGuard {
  double clip = 0;      // its largest norm; 0: any
  bool finite = false;  // true: a step whose gradient is not finite changes nothing
};

/// One step of all parameters at once, in one pass over the flat buffers (LAMB: two). Does not zero the
/// gradients. It has two parts, so that the work of a step can be recorded once and repeated: begin_step()
/// writes the numbers of the step into the device's memory, apply() only queues work, which reads them there.
class Optimizer {
 public:
  /// Numbers that it keeps for each parameter, laid out like Parameters::values().
  struct State {
    std::string name;  // velocity, first_moment, ...
    Tensor values;
  };

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Counts a step, at rate lr and against scale · gradient.
  void begin_step(double lr, double scale = 1);
  /// The step against scale · parameters.gradients(), the same parameters every time. Waits for nothing.
  void apply(Parameters& parameters, const StepGuard& guard = {});
  /// Both.
  void step(Parameters& parameters, double lr, double scale = 1) {
    begin_step(lr, scale);
    apply(parameters);
  }
  /// The norm of the gradient that the last step found, if it had a guard, else 0. Waits for the step. A step
  /// that has changed nothing, the norm not being finite, still counts: set_steps(steps() − 1) takes it back.
  double norm() const;
  /// The numbers of the step, on the parameters' device.
  const kernels::StepValues* values() const { return static_cast<const kernels::StepValues*>(step_.raw()); }

  const OptimizerOptions& options() const { return options_; }
  /// A checkpoint has to keep these and the count of steps, on which Adam's and LAMB's corrections depend.
  const std::vector<State>& states() const { return states_; }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 protected:
  Optimizer(const OptimizerOptions& options, const Parameters& parameters);
  void add_state(std::string name, double value);
  /// The step of all parameters.
  virtual void update(Parameters& parameters) = 0;

 private:
  OptimizerOptions options_;
  Tensor like_;
  Tensor step_;                 // StepValues
  Tensor squares_, workspace_;  // of the norm
  std::vector<State> states_;
  std::int64_t steps_ = 0;
};

/// `parameters` is built. Throws UsageError unless the options make sense.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const Parameters& parameters);

/// ‖g‖ over all parameters, each counted once however many layers share it; in double. Waits for it.
double gradient_norm(const Parameters& parameters);

}  // namespace ssn
