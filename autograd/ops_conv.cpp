#include "autograd/flops.h"
#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/conv.h"
#include "kernels/matmul.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

kernels::ConvGeometry checked_geometry(const Var& x, const Var& w, const ConvOptions& o) {
  const Shape &xs = x.shape(), &ws = w.shape();
  check(xs.rank() == 4 && ws.rank() == 4, "conv2d",
        "the input is {}, the weight {}: expected (n, h, w, c) and (o, c/groups, kh, kw)", xs.text(),
        ws.text());
  check(o.groups >= 1 && xs[3] == ws[1] * o.groups && ws[0] % o.groups == 0, "conv2d",
        "the input is {} (n, h, w, c), the weight {} (o, c/groups, kh, kw), in {} groups: expected an input "
        "of {} "
        "channels, and o a multiple of the groups",
        xs.text(), ws.text(), o.groups, ws[1] * o.groups);
  kernels::ConvGeometry g{xs[0], xs[1], xs[2], xs[3], ws[0], ws[2], ws[3]};
  g.groups = o.groups;
  for (int i = 0; i < 2; ++i) {
    check(o.stride[i] >= 1 && o.padding[i] >= 0 && o.dilation[i] >= 1 && ws[2 + i] >= 1, "conv2d",
          "weight {}, stride {}, padding {}, dilation {}: expected a kernel, stride and dilation of at least "
          "1 and a "
          "padding of at least 0",
          ws.text(), o.stride[i], o.padding[i], o.dilation[i]);
    const std::int64_t window = o.dilation[i] * (ws[2 + i] - 1) + 1, padded = xs[1 + i] + 2 * o.padding[i];
    check(window <= padded, "conv2d",
          "the input is {} (n, h, w, c), the weight {} (o, c/groups, kh, kw): its window covers {} {}, the "
          "padded "
          "input has only {}",
          xs.text(), ws.text(), window, i == 0 ? "rows" : "columns", padded);
    g.stride[i] = o.stride[i];
    g.padding[i] = o.padding[i];
    g.dilation[i] = o.dilation[i];
  }
  return g;
}

/// f<T>(queue, workspace) for a convolution of this geometry.
template <class F>
void run_conv(Where where, const Tensor& like, const kernels::ConvGeometry& g, F&& f) {
  check(like.device() == Device::cpu, where, "runs on the CPU only so far: use --device cpu");
  CpuQueue& queue = cpu_queue();
  const std::size_t bytes = like.dtype() == DType::f64   ? kernels::conv_workspace<double>(queue, g)
                            : like.dtype() == DType::f32 ? kernels::conv_workspace<float>(queue, g)
                                                         : kernels::conv_workspace<bf16>(queue, g);
  const Storage workspace = Storage::allocate(like.device(), bytes);
  dispatch_mixed_cpu(like.device(), like.dtype(), where,
                     [&]<class T>(auto& q) { f.template operator()<T>(q, workspace.data()); });
}

void conv2d_backward(const kernels::ConvGeometry& g, const Tensor& gy, const Var& x, const Var& w) {
  // The weight's gradient first: its sum over the ranks can start while the input's is computed.
  if (w.wants_grad()) {
    const Tensor xv = x.value(), gw = Tensor::empty(w.shape(), w.dtype(), w.device());
    run_conv("conv2d backward weight", gy, g, [&]<class T>(auto& q, void* workspace) {
      kernels::conv_backward_weight<T>(q, g, xv.data<T>(), gy.data<T>(), gw.data<Wider<T>>(), workspace);
    });
    w.add_grad(gw);
  }
  if (x.wants_grad()) {
    const Tensor wv = w.value(), gx = Tensor::empty(x.shape(), x.dtype(), x.device());
    run_conv("conv2d backward data", gy, g, [&]<class T>(auto& q, void* workspace) {
      kernels::conv_backward_data<T>(q, g, gy.data<T>(), wv.data<Wider<T>>(), gx.data<T>(), workspace);
    });
    x.add_grad(gx);
  }
}

/// c = op(a) op(b), or c += it, of matrices.
void multiply(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
              bool add) {
  const std::int64_t k = a.shape()[transpose_a ? 0 : 1];
  dispatch_cpu(a.device(), a.dtype(), "linear", [&]<class T>(auto& q) {
    kernels::matmul<T>(q, transpose_a, transpose_b, c.shape()[0], c.shape()[1], k, a.data<T>(), b.data<T>(),
                       c.data<T>(), add);
  });
}
Tensor product(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b) {
  const Tensor c =
      Tensor::empty({a.shape()[transpose_a ? 1 : 0], b.shape()[transpose_b ? 0 : 1]}, a.dtype(), a.device());
  multiply(a, transpose_a, b, transpose_b, c, false);
  return c;
}
/// Adds op(gy) b to x's gradient, if x wants one: where there is a gradient, as of parameters, in its memory.
void add_product(const Tensor& gy, bool transpose, const Var& b, const Var& x) {
  if (!x.wants_grad()) return;
  if (x.grad())
    multiply(gy, transpose, b.value(), false, x.grad_buffer(), true);
  else
    x.add_grad(product(gy, transpose, b.value(), false));
}

}  // namespace

Var conv2d(const Var& x, const Var& w, const ConvOptions& options) {
  check_parameter("conv2d", x, w, "the weight");
  const kernels::ConvGeometry g = checked_geometry(x, w, options);
  const Tensor xv = x.value(), wv = w.value();
  count_multiply_adds(g.n * g.out_h() * g.out_w() * w.size());
  const Tensor y = Tensor::empty({g.n, g.out_h(), g.out_w(), g.o}, x.dtype(), x.device());
  run_conv("conv2d", xv, g, [&]<class T>(auto& q, void* workspace) {
    kernels::conv_forward<T>(q, g, xv.data<T>(), wv.data<Wider<T>>(), y.data<T>(), workspace);
  });
  return Var::result(
      y, {x, w}, [g](const Tensor& gy, std::span<const Var> in) { conv2d_backward(g, gy, in[0], in[1]); });
}

namespace {

Tensor linear_forward(const Var& x, const Var& w) {
  check_alike("linear", x, w, "the weight");
  check(x.shape().rank() == 2 && w.shape().rank() == 2 && x.shape()[1] == w.shape()[1], "linear",
        "the input is {}, the weight {}: expected (rows, i) and (o, i)", x.shape().text(), w.shape().text());
  count_multiply_adds(x.shape()[0] * w.size());
  return product(x.value(), false, w.value(), true);
}

void linear_backward(const Tensor& gy, std::span<const Var> in) {
  add_product(gy, true, in[0], in[1]);
  add_product(gy, false, in[1], in[0]);
}

}  // namespace

Var linear(const Var& x, const Var& w) {
  return Var::result(linear_forward(x, w), {x, w}, linear_backward);
}

Var linear(const Var& x, const Var& w, const Var& b) {
  check(w.shape().rank() == 2 && b.shape() == Shape{w.shape()[0]}, "linear",
        "the weight is {}, the bias {}: expected (o, i) and o", w.shape().text(), b.shape().text());
  check_alike("linear", x, b, "the bias");
  Tensor y = linear_forward(x, w);
  add_bias(y, b, y);
  return Var::result(std::move(y), {x, w, b}, [](const Tensor& gy, std::span<const Var> in) {
    add_bias_gradient(gy, in[2]);
    linear_backward(gy, in);
  });
}

}  // namespace ssn
