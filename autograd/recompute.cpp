#include "autograd/recompute.h"

#include <utility>

namespace ssn {
namespace {

/// One call of recomputed(), from forward to backward.
struct Recomputation {
  std::vector<std::shared_ptr<void>> kept;  // in the order of the first run
  std::size_t next = 0;
  bool again = false;
};
thread_local Recomputation* t_current = nullptr;

/// f runs within it.
class Running {
 public:
  explicit Running(Recomputation& r) : outer_(std::exchange(t_current, &r)) {}
  ~Running() { t_current = outer_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Recomputation* outer_;
};

}  // namespace

bool recomputing() {
  return t_current != nullptr && t_current->again;
}

bool gradient_follows() {
  return grad_enabled() || t_current != nullptr;
}

std::shared_ptr<void> kept_for_backward(const std::function<std::shared_ptr<void>()>& make) {
  if (t_current == nullptr) return grad_enabled() ? make() : nullptr;
  if (!t_current->again) return t_current->kept.emplace_back(make());
  check(t_current->next < t_current->kept.size(), "recomputed", "the second run is not like the first");
  return std::exchange(t_current->kept[t_current->next++], nullptr);
}

Var recomputed(std::vector<Var> inputs, std::function<Var(std::span<const Var>)> f) {
  if (!grad_enabled() || t_current != nullptr) return f(inputs);
  auto run = std::make_shared<Recomputation>();
  Tensor value;
  {
    const NoGrad no_grad;
    const Running running(*run);
    value = f(inputs).value();
  }
  return Var::always_recorded(
      std::move(value), std::move(inputs),
      [run, f = std::move(f)](const Tensor& gy, std::span<const Var> in) {
        std::vector<Var> leaves;
        for (const Var& x : in)
          leaves.push_back(x.wants_grad() ? Var::leaf(x.value()) : Var::constant(x.value()));
        run->again = true;
        Var y;
        {
          const Running running(*run);
          y = f(leaves);
        }
        backward({&y, 1}, {&gy, 1});
        y = {};
        for (std::size_t i = 0; i < in.size(); ++i) {
          Tensor g = in[i].wants_grad() ? leaves[i].grad() : Tensor();
          leaves[i] = {};
          if (g) in[i].add_grad(std::move(g));
        }
      });
}

}  // namespace ssn
