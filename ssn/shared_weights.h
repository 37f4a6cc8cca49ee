#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "autograd/parameters.h"
#include "ssn/plan.h"

namespace ssn {

/// What is kept of generated weights. Both give the same bits, but for what linear() may fuse.
enum class WeightPolicy : std::uint8_t {
  lean,   // nothing: a weight is generated for each use in forward and backward; one layer's at a time
  eager,  // a group's weights are generated in one call at its first use, in the formats that they were used
          // in before, and kept until the values change; one whose use wants another is made alone. Their
          // gradients are kept until the last has arrived and carried on in one call
};
template <>
struct Names<WeightPolicy> {
  static constexpr std::string_view what = "weights", values[] = {"lean", "eager"};
};

/// These elements of the flat gradient, all or some of a group's, got their last contribution.
struct Completion {
  int group;
  FlatRange range;
};

/// Owns the groups' parameters and makes every layer's weight of them. The network without sharing is the
/// plan in which each layer has a group of its own.
///
///   SharedWeights weights(parameters, options, policy);
///   Model model(weights, parameters);   // requests weights, adds its ordinary parameters
///   weights.build();                    // plans, adds the groups and coefficients
///   parameters.build();
///
/// A step: forward, backward(), finish_backward() (once for each backward pass), optimizer,
/// parameters.values_changed(). One thread.
class SharedWeights final : public WeightFactory {
 public:
  SharedWeights(Parameters& parameters, PlanOptions options, WeightPolicy policy = WeightPolicy::eager);
  ~SharedWeights() override;

  int request(WeightRequest request) override;
  /// Ends the asking. Needs all ordinary parameters added (for the counts), and Parameters::build() after it.
  void build();
  /// Valid after build().
  const Plan& plan() const;

  /// Declares a use, unless nothing is recorded; within recomputed(), in its first run. Its group is complete
  /// when every declared use that is still alive has added its gradient.
  Var use(int number, const WeightFormat& format) override;
  /// As theta has it: f32, convolutions' (O, I/groups, kh, kw).
  Var use(int number) { return use(number, {}); }
  /// Without the weight in memory, where that is faster (autograd/fused_linear.h), weights are not kept, and
  /// no gradient follows.
  Var linear(int number, const Var& x, const Var& bias) override;
  std::uint64_t seed() const override { return options_.seed; }

  /// `callback` when a group's gradient is complete, in backward() or, where some use got no gradient, in
  /// finish_backward() in the order of the groups: every element once a step, in an order that is the same on
  /// every rank. A group is reported in parts where its layers use different parts of it: each of at least
  /// `least` elements, as soon as none of the layers that use it is waited for.
  void on_complete(std::function<void(const Completion&)> callback,
                   std::int64_t least = std::numeric_limits<std::int64_t>::max());
  /// Off for all but the last micro-batch of a step: backward passes add gradients but report nothing.
  void set_reporting(bool on) { reporting_ = on; }
  /// After every backward(): carries on gradients that still wait, reports the groups that were not, and
  /// makes ready for the next pass.
  void finish_backward();
  /// Instead, after an exception in backward(): forgets gradients that still wait.
  void abandon_backward();

 private:
  class Use;
  struct Group;
  struct Place {
    int group, index;
  };
  std::vector<WeightRecipe> make_recipes(int group);
  std::pair<Var, Var> add_projection(int layer);
  Var add_masks(const std::string& name, std::int64_t tiles);
  Place place_of(int number);
  Tensor kept_weight(Place place, const WeightFormat& format);
  void arrived(Place place, const WeightFormat& format, const Tensor& gradient);
  void carry_on(Group& group);
  void report(int group, bool all);
  void forget_reports();

  Parameters& parameters_;
  PlanOptions options_;
  WeightPolicy policy_;
  std::vector<WeightRequest> requests_;
  Plan plan_;
  std::vector<Place> places_;  // of each layer
  std::vector<std::shared_ptr<Group>> groups_;
  std::function<void(const Completion&)> callback_;
  bool reporting_ = true, checked_ = false;
};

}  // namespace ssn
