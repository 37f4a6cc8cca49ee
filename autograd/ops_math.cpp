#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "runtime/dispatch.h"

namespace ssn {

Var add(const Var& a, const Var& b) {
  check(a.shape() == b.shape(), "add", "both must have the same shape, found {} and {}", a.shape().text(),
        b.shape().text());
  check_alike("add", a, b, "the second");
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  if (y.size() > 0) {
    dispatch(y.device(), y.dtype(), "add", [&]<class T>(auto& q) {
      kernels::add_forward<T>(q, y.size(), a.value().data<T>(), b.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {a, b}, [](const Tensor& gy, std::span<const Var> in) {
    in[0].add_grad(gy);
    in[1].add_grad(gy);
  });
}

Var relu(const Var& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch(y.device(), y.dtype(), "relu", [&]<class T>(auto& q) {
      kernels::relu_forward<T>(q, y.size(), x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(y, {x}, [y](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = reused_or_new(gy);
    if (gx.size() > 0) {
      dispatch(gy.device(), gy.dtype(), "relu backward", [&]<class T>(auto& q) {
        kernels::relu_backward<T>(q, gy.size(), y.data<T>(), gy.data<T>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

Var bias_add(const Var& x, const Var& b) {
  check(x.shape().rank() >= 1 && b.shape() == Shape{x.shape()[-1]}, "bias_add",
        "the bias needs one element for each of the last axis of {}, found {}", x.shape().text(),
        b.shape().text());
  check_alike("bias_add", x, b, "the bias");
  const std::int64_t cols = b.size(), rows = cols ? x.size() / cols : 0;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch(y.device(), y.dtype(), "bias_add", [&]<class T>(auto& q) {
      kernels::bias_forward<T>(q, rows, cols, x.value().data<T>(), b.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {x, b}, [rows, cols](const Tensor& gy, std::span<const Var> in) {
    in[0].add_grad(gy);
    if (!in[1].wants_grad()) return;
    const Tensor gb = in[1].grad_buffer();
    if (gy.size() == 0) return;
    const Tensor workspace =
        Tensor::empty(Shape{kernels::column_sum_workspace(rows, cols)}, gy.dtype(), gy.device());
    dispatch(gy.device(), gy.dtype(), "bias_add backward", [&]<class T>(auto& q) {
      kernels::column_sum<T>(q, rows, cols, gy.data<T>(), gb.data<T>(), workspace.data<T>());
    });
  });
}

Var reshape(const Var& x, const Shape& shape) {
  check(shape.size() == x.size(), "reshape", "{} has {} elements, {} has {}", x.shape().text(), x.size(),
        shape.text(), shape.size());
  return Var::result(x.value().view(shape), {x}, [](const Tensor& gy, std::span<const Var> in) {
    in[0].add_grad(gy.view(in[0].shape()));
  });
}

}  // namespace ssn
