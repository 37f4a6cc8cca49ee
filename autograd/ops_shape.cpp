#include "autograd/ops.h"
#include "kernels/permute.h"
#include "runtime/dispatch.h"

namespace ssn {

Var pad_channels(const Var& x, std::int64_t before, std::int64_t channels) {
  check(x.shape().rank() >= 1, "pad_channels", "needs at least one axis, found a scalar");
  const std::int64_t in = x.shape()[-1];
  check(before >= 0 && before + in <= channels && in > 0, "pad_channels",
        "{} channels at {} do not fit into {}", in, before, channels);
  const std::int64_t rows = x.size() / in;
  std::vector<std::int64_t> dims(x.shape().begin(), x.shape().end());
  dims.back() = channels;
  Tensor y = Tensor::empty(Shape(dims), x.dtype(), x.device());
  if (rows > 0)
    dispatch(x.device(), x.dtype(), "pad_channels", [&]<class T>(auto& q) {
      kernels::pad_channels_forward<T>(q, rows, in, before, channels, x.value().data<T>(), y.data<T>());
    });
  return Var::result(y, {x}, [=](const Tensor& gy, std::span<const Var> inputs) {
    Tensor gx = Tensor::empty(inputs[0].shape(), gy.dtype(), gy.device());
    if (rows > 0)
      dispatch(gy.device(), gy.dtype(), "pad_channels", [&]<class T>(auto& q) {
        kernels::pad_channels_backward<T>(q, rows, in, before, channels, gy.data<T>(), gx.data<T>());
      });
    inputs[0].add_grad(std::move(gx));
  });
}

}  // namespace ssn
