#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/elementwise.h"
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
    dispatch_mixed(x.device(), x.dtype(), "pad_channels", [&]<class T>(auto& q) {
      kernels::pad_channels_forward<T>(q, rows, in, before, channels, x.value().data<T>(), y.data<T>());
    });
  return Var::result(y, {x}, [=](const Tensor& gy, std::span<const Var> inputs) {
    Tensor gx = Tensor::empty(inputs[0].shape(), gy.dtype(), gy.device());
    if (rows > 0)
      dispatch_mixed(gy.device(), gy.dtype(), "pad_channels", [&]<class T>(auto& q) {
        kernels::pad_channels_backward<T>(q, rows, in, before, channels, gy.data<T>(), gx.data<T>());
      });
    inputs[0].add_grad(std::move(gx));
  });
}

Tensor converted(const Tensor& x, DType to) {
  if (to == x.dtype()) return x;
  Tensor y = Tensor::empty(x.shape(), to, x.device());
  // Either type serves to dispatch: one of them is bf16.
  if (y.size() > 0)
    dispatch_mixed(x.device(), DType::bf16, "cast", [&]<class T>(auto& q) {
      if constexpr (std::is_same_v<T, bf16>) {
        if (to == DType::bf16)
          kernels::convert(q, x.size(), x.data<float>(), y.data<bf16>());
        else
          kernels::convert(q, x.size(), x.data<bf16>(), y.data<float>());
      }
    });
  return y;
}

Var cast(const Var& x, DType to) {
  if (to == x.dtype()) return x;
  check(wider(x.dtype()) == DType::f32 && wider(to) == DType::f32, "cast",
        "from {} to {}: only f32 and bf16 are possible", name_of(x.dtype()), name_of(to));
  return Var::result(converted(x.value(), to), {x}, [](const Tensor& gy, std::span<const Var> in) {
    in[0].add_grad(converted(gy, in[0].dtype()));
  });
}

}  // namespace ssn
