#include "autograd/flops.h"
#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/conv.h"
#include "kernels/matmul.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

using kernels::ConvGeometry;
using kernels::ConvPass;

/// (o, c/groups, kh, kw) of a weight of rank 4.
Shape plain_shape(const Shape& w, const ConvOptions& o) {
  return o.channels_last ? Shape{w[0], w[3], w[1], w[2]} : w;
}

ConvGeometry checked_geometry(const Var& x, const Var& w, const ConvOptions& o) {
  check(x.shape().rank() == 4 && w.shape().rank() == 4, "conv2d",
        "the input is {}, the weight {}: expected (n, h, w, c) and (o, c/groups, kh, kw)", x.shape().text(),
        w.shape().text());
  const Shape &xs = x.shape(), ws = plain_shape(w.shape(), o);
  check(o.groups >= 1 && xs[3] == ws[1] * o.groups && ws[0] % o.groups == 0, "conv2d",
        "the input is {} (n, h, w, c), the weight {} (o, c/groups, kh, kw), in {} groups: expected an input "
        "of {} "
        "channels, and o a multiple of the groups",
        xs.text(), ws.text(), o.groups, ws[1] * o.groups);
  ConvGeometry g{xs[0], xs[1], xs[2], xs[3], ws[0], ws[2], ws[3]};
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

/// f<T>(queue) with x's type, in a dry run too.
template <class F>
auto with_type(Where where, Device device, DType dtype, F&& f) {
  return on_queue(device, where, [&](auto& q) {
    return dtype == DType::f64   ? f.template operator()<double>(q)
           : dtype == DType::f32 ? f.template operator()<float>(q)
                                 : f.template operator()<bf16>(q);
  });
}

/// f<T>(queue, workspace) for a pass of a convolution of this geometry.
template <class F>
void run_conv(Where where, const Tensor& like, const ConvGeometry& g, ConvPass pass, F&& f) {
  const std::size_t bytes = with_type(where, like.device(), like.dtype(), [&]<class T>(auto& q) {
    return kernels::conv_workspace<T>(q, g, pass);
  });
  const Storage workspace = Storage::allocate(like.device(), bytes);
  dispatch_mixed(like.device(), like.dtype(), where,
                 [&]<class T>(auto& q) { f.template operator()<T>(q, workspace.data()); });
}

/// How a convolution's weight comes, and how the kernel reads it.
struct ConvWeight {
  Shape shape;  // (o, c/groups, kh, kw)
  WeightFormat given, read;

  Tensor to_read(const Var& w) const { return reformatted(w.value(), shape, given, read); }
};

void conv2d_backward(const ConvGeometry& g, const ConvWeight& weight, const Tensor& gy, const Var& x,
                     const Var& w) {
  // The weight's gradient first: its sum over the ranks can start while the input's is computed.
  if (w.wants_grad()) {
    count_multiply_adds(g.n * g.out_h() * g.out_w() * w.size());
    const WeightFormat order{.channels_last = weight.read.channels_last};
    const Tensor xv = x.value(),
                 gw = Tensor::empty(shape_in(order, weight.shape), wider(w.dtype()), w.device());
    run_conv("conv2d backward weight", gy, g, ConvPass::weight, [&]<class T>(auto& q, void* workspace) {
      kernels::conv_backward_weight<T>(q, g, xv.data<T>(), gy.data<T>(), gw.data<Wider<T>>(), workspace);
    });
    w.add_grad(reformatted(gw, weight.shape, order, {.channels_last = weight.given.channels_last}));
  }
  if (x.wants_grad()) {
    count_multiply_adds(g.n * g.out_h() * g.out_w() * w.size());
    const Tensor wv = weight.to_read(w), gx = Tensor::empty(x.shape(), x.dtype(), x.device());
    run_conv("conv2d backward data", gy, g, ConvPass::data, [&]<class T>(auto& q, void* workspace) {
      kernels::conv_backward_data<T>(q, g, gy.data<T>(), wv.raw(), gx.data<T>(), workspace);
    });
    x.add_grad(gx);
  }
}

template <class T, class C = T>
void run_matmul(const kernels::MatmulShape& s, const Tensor& a, const Tensor& b, const Tensor& bias,
                const Tensor& c, bool add) {
  on_queue(a.device(), "linear", [&](auto& q) {
    const kernels::Matmul<T, C> product{
        s, a.data<T>(), b.data<T>(), bias ? bias.data<Wider<C>>() : nullptr, c.data<C>(), add};
    const Storage workspace = Storage::allocate(a.device(), kernels::matmul_workspace(q, product));
    if (dry_run()) return;
    const Span span("linear");
    kernels::matmul(q, product, workspace.data());
  });
}
/// c = op(a) op(b), plus the bias if there is one, or c += it. With bf16 operands c may be f32.
void multiply(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& bias,
              const Tensor& c, bool add) {
  const kernels::MatmulShape s{transpose_a, transpose_b, c.shape()[0], c.shape()[1],
                               a.shape()[transpose_a ? 0 : 1]};
  if (c.size() == 0) return;
  if (s.k == 0) {
    if (!add) c.fill(0);
    if (bias) add_bias(c, bias, c);
    return;
  }
  if (a.dtype() == DType::f64) return run_matmul<double>(s, a, b, bias, c, add);
  if (a.dtype() == DType::f32) return run_matmul<float>(s, a, b, bias, c, add);
  return c.dtype() == DType::bf16 ? run_matmul<bf16>(s, a, b, bias, c, add)
                                  : run_matmul<bf16, float>(s, a, b, bias, c, add);
}
/// Adds op(gy) b to x's gradient of this type: where there is one, as of parameters, in its memory.
void add_product(const Tensor& gy, bool transpose, const Tensor& b, const Var& x, DType type) {
  count_multiply_adds(gy.size() * b.shape()[1]);
  if (x.grad()) return multiply(gy, transpose, b, false, {}, x.grad_buffer(), true);
  const Tensor gx = Tensor::empty(x.shape(), type, x.device());
  multiply(gy, transpose, b, false, {}, gx, false);
  x.add_grad(gx);
}

}  // namespace

Var conv2d(const Var& x, const Var& w, const ConvOptions& options) {
  check_weight("conv2d", x, w);
  const ConvGeometry g = checked_geometry(x, w, options);
  const Shape shape = plain_shape(w.shape(), options);
  const ConvWeight weight{
      shape, {w.dtype() == DType::bf16, options.channels_last}, conv2d_format(x, shape, options)};
  const Tensor xv = x.value(), wv = weight.to_read(w);
  count_multiply_adds(g.n * g.out_h() * g.out_w() * w.size());
  const Tensor y = Tensor::empty({g.n, g.out_h(), g.out_w(), g.o}, x.dtype(), x.device());
  run_conv("conv2d", xv, g, ConvPass::forward, [&]<class T>(auto& q, void* workspace) {
    kernels::conv_forward<T>(q, g, xv.data<T>(), wv.raw(), y.data<T>(), workspace);
  });
  return Var::result(y, {x, w}, [g, weight](const Tensor& gy, std::span<const Var> in) {
    conv2d_backward(g, weight, gy, in[0], in[1]);
  });
}

WeightFormat conv2d_format(const Var& x, const Shape& weight, const ConvOptions& options) {
  ConvGeometry g{};
  g.c = weight[1] * options.groups, g.o = weight[0], g.kh = weight[2], g.kw = weight[3];
  g.groups = options.groups;
  return with_type("conv2d", x.device(), x.dtype(),
                   [&]<class T>(auto& q) { return kernels::conv_weight_format<T>(q, g); });
}

WeightFormat linear_format(const Var& x) {
  return {.half = x.device() == Device::cuda && x.dtype() == DType::bf16};
}

namespace {

/// y of a type: x's or the wider one.
Tensor linear_forward(const Var& x, const Var& w, const Tensor& bias, DType type) {
  check_weight("linear", x, w);
  check(x.shape().rank() == 2 && w.shape().rank() == 2 && x.shape()[1] == w.shape()[1], "linear",
        "the input is {}, the weight {}: expected (rows, i) and (o, i)", x.shape().text(), w.shape().text());
  count_multiply_adds(x.shape()[0] * w.size());
  const Tensor y = Tensor::empty({x.shape()[0], w.shape()[0]}, type, x.device());
  multiply(x.value(), false, converted(w.value(), x.dtype()), true, bias, y, false);
  return y;
}

void linear_backward(const Tensor& gy, std::span<const Var> in) {
  const Var &x = in[0], &w = in[1];
  const Tensor g = converted(gy, x.dtype());
  if (w.wants_grad()) add_product(g, true, x.value(), w, wider(w.dtype()));
  if (x.wants_grad()) add_product(g, false, converted(w.value(), x.dtype()), x, x.dtype());
}

Var linear_with_bias(const Var& x, const Var& w, const Var& b, DType type) {
  check(w.shape().rank() == 2 && b.shape() == Shape{w.shape()[0]}, "linear",
        "the weight is {}, the bias {}: expected (o, i) and o", w.shape().text(), b.shape().text());
  check_parameter("linear", x, b, "the bias");
  return Var::result(linear_forward(x, w, b.value(), type), {x, w, b},
                     [](const Tensor& gy, std::span<const Var> in) {
                       add_bias_gradient(gy, in[2]);
                       linear_backward(gy, in);
                     });
}

}  // namespace

Var linear(const Var& x, const Var& w) {
  return Var::result(linear_forward(x, w, {}, x.dtype()), {x, w}, linear_backward);
}

Var linear(const Var& x, const Var& w, const Var& b) {
  return linear_with_bias(x, w, b, x.dtype());
}

Var logits(const Var& x, const Var& w, const Var& b) {
  return linear_with_bias(x, w, b, wider(x.dtype()));
}

}  // namespace ssn
