#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/dropout.h"
#include "runtime/dispatch.h"

namespace ssn {

Var dropout(const Var& x, const DropoutOptions& o) {
  check(o.rate >= 0 && o.rate < 1, "dropout", "the rate must be in [0, 1), found {}", o.rate);
  check(o.unit >= 1 && o.first >= 0, "dropout",
        "a unit must be of at least one element and the first sample at least 0, found {} and {}", o.unit,
        o.first);
  if (o.rate == 0 || x.size() == 0) return x;
  const std::int64_t sample = x.shape().rank() ? x.size() / x.shape()[0] : 1;
  const kernels::DropoutRule rule{o.rate, o.random, o.first * sample, o.unit};
  const auto apply = [rule](const Tensor& from, const Tensor& to) {
    dispatch_mixed(from.device(), from.dtype(), "dropout", [&]<class T>(auto& q) {
      kernels::dropout<T>(q, from.size(), rule, from.data<T>(), to.data<T>());
    });
  };
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  apply(x.value(), y);
  return Var::result(std::move(y), {x}, [apply](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = reused_or_new(gy);
    apply(gy, gx);
    in[0].add_grad(std::move(gx));
  });
}

}  // namespace ssn
