#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "runtime/dispatch.h"

namespace ssn {

namespace {

/// gx where y = max(x, 0).
Tensor relu_gradient(const Tensor& y, const Tensor& gy) {
  Tensor gx = reused_or_new(gy);
  if (gx.size() > 0) {
    dispatch_mixed(gy.device(), gy.dtype(), "relu backward", [&]<class T>(auto& q) {
      kernels::relu_backward<T>(q, gy.size(), y.data<T>(), gy.data<T>(), gx.data<T>());
    });
  }
  return gx;
}

void check_sum(const Var& a, const Var& b) {
  check(a.shape() == b.shape(), "add", "both must have the same shape, found {} and {}", a.shape().text(),
        b.shape().text());
  check_alike("add", a, b, "the second");
}

}  // namespace

Var add(const Var& a, const Var& b) {
  check_sum(a, b);
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  if (y.size() > 0) {
    dispatch_mixed(y.device(), y.dtype(), "add", [&]<class T>(auto& q) {
      kernels::add_forward<T>(q, y.size(), a.value().data<T>(), b.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {a, b}, [](const Tensor& gy, std::span<const Var> in) {
    in[0].add_grad(gy);
    in[1].add_grad(gy);
  });
}

Var add_relu(const Var& a, const Var& b) {
  check_sum(a, b);
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  if (y.size() > 0) {
    dispatch_mixed(y.device(), y.dtype(), "add_relu", [&]<class T>(auto& q) {
      kernels::add_relu_forward<T>(q, y.size(), a.value().data<T>(), b.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(y, {a, b}, [y](const Tensor& gy, std::span<const Var> in) {
    const Tensor gx = relu_gradient(y, gy);
    in[0].add_grad(gx);
    in[1].add_grad(gx);
  });
}

Var relu(const Var& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch_mixed(y.device(), y.dtype(), "relu", [&]<class T>(auto& q) {
      kernels::relu_forward<T>(q, y.size(), x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(
      y, {x}, [y](const Tensor& gy, std::span<const Var> in) { in[0].add_grad(relu_gradient(y, gy)); });
}

Var tanh(const Var& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch_mixed(y.device(), y.dtype(), "tanh", [&]<class T>(auto& q) {
      kernels::tanh_forward<T>(q, y.size(), x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(y, {x}, [y](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = reused_or_new(gy);
    if (gx.size() > 0) {
      dispatch_mixed(gy.device(), gy.dtype(), "tanh backward", [&]<class T>(auto& q) {
        kernels::tanh_backward<T>(q, gy.size(), y.data<T>(), gy.data<T>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

Var sigmoid(const Var& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch(y.device(), y.dtype(), "sigmoid", [&]<class T>(auto& q) {
      kernels::sigmoid_forward<T>(q, y.size(), x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(y, {x}, [y](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = reused_or_new(gy);
    if (gx.size() > 0) {
      dispatch(gy.device(), gy.dtype(), "sigmoid backward", [&]<class T>(auto& q) {
        kernels::sigmoid_backward<T>(q, gy.size(), y.data<T>(), gy.data<T>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

Var silu(const Var& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch(y.device(), y.dtype(), "silu", [&]<class T>(auto& q) {
      kernels::silu_forward<T>(q, y.size(), x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {x}, [](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = reused_or_new(gy);
    if (gx.size() > 0) {
      dispatch(gy.device(), gy.dtype(), "silu backward", [&]<class T>(auto& q) {
        kernels::silu_backward<T>(q, gy.size(), in[0].value().data<T>(), gy.data<T>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

namespace {

/// x as (rows, cols) of its last axis.
struct Matrix {
  std::int64_t cols, rows;
  explicit Matrix(const Shape& s) : cols(s.rank() ? s[-1] : 1), rows(cols ? s.size() / cols : 0) {}
};

void check_bias(Where where, const Var& x, const Var& b) {
  check(x.shape().rank() >= 1 && b.shape() == Shape{x.shape()[-1]}, where,
        "the bias needs one element for each of the last axis of {}, found {}", x.shape().text(),
        b.shape().text());
  check_parameter(where, x, b, "the bias");
}

/// gelu(x + b); b may be none.
Tensor gelu_of(const Var& x, const Tensor& b) {
  const Matrix m(x.shape());
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() == 0) return y;
  dispatch_mixed(y.device(), y.dtype(), "gelu", [&]<class T>(auto& q) {
    kernels::gelu_forward<T>(q, m.rows, m.cols, x.value().data<T>(), b ? b.data<Wider<T>>() : nullptr,
                             y.data<T>());
  });
  return y;
}

/// Its gradient.
Tensor gelu_gradient(const Tensor& gy, const Var& x, const Tensor& b) {
  const Matrix m(x.shape());
  Tensor gx = reused_or_new(gy);
  if (gx.size() == 0) return gx;
  dispatch_mixed(gy.device(), gy.dtype(), "gelu backward", [&]<class T>(auto& q) {
    kernels::gelu_backward<T>(q, m.rows, m.cols, x.value().data<T>(), b ? b.data<Wider<T>>() : nullptr,
                              gy.data<T>(), gx.data<T>());
  });
  return gx;
}

}  // namespace

void add_bias_gradient(const Tensor& gy, const Var& b) {
  if (!b.wants_grad()) return;
  const Tensor gb = b.grad_buffer();
  if (gy.size() == 0) return;
  const Matrix m(gy.shape());
  const Tensor workspace =
      Tensor::empty(Shape{kernels::column_sum_workspace(m.rows, m.cols)}, gb.dtype(), gy.device());
  dispatch_mixed(gy.device(), gy.dtype(), "bias backward", [&]<class T>(auto& q) {
    kernels::column_sum<T>(q, m.rows, m.cols, gy.data<T>(), gb.data<Wider<T>>(), workspace.data<Wider<T>>());
  });
}

void add_bias(const Tensor& x, const Tensor& b, const Tensor& y) {
  if (y.size() == 0) return;
  const Matrix m(y.shape());
  dispatch_mixed(y.device(), y.dtype(), "bias", [&]<class T>(auto& q) {
    kernels::bias_forward<T>(q, m.rows, m.cols, x.data<T>(), b.data<Wider<T>>(), y.data<T>());
  });
}

Var bias_add(const Var& x, const Var& b) {
  check_bias("bias_add", x, b);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  add_bias(x.value(), b.value(), y);
  return Var::result(std::move(y), {x, b}, [](const Tensor& gy, std::span<const Var> in) {
    in[0].add_grad(gy);
    add_bias_gradient(gy, in[1]);
  });
}

Var gelu(const Var& x) {
  return Var::result(gelu_of(x, {}), {x}, [](const Tensor& gy, std::span<const Var> in) {
    in[0].add_grad(gelu_gradient(gy, in[0], {}));
  });
}

Var bias_gelu(const Var& x, const Var& b) {
  check_bias("bias_gelu", x, b);
  return Var::result(gelu_of(x, b.value()), {x, b}, [](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = gelu_gradient(gy, in[0], in[1].value());
    add_bias_gradient(gx, in[1]);
    in[0].add_grad(std::move(gx));
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
