#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "autograd/scratch.h"
#include "kernels/norm.h"
#include "kernels/pool.h"
#include "kernels/resize.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

void check_batch_norm(const Var& x, const Var& gain, const Var& bias, const Tensor& running_mean,
                      const Tensor& running_var) {
  check(x.shape().rank() >= 2, "batch_norm", "x must be (rows, channels) or (n, h, w, channels), found {}",
        x.shape().text());
  const Shape channels{x.shape()[-1]};
  const auto check_one = [&](const auto& v, std::string_view name) {
    check(v.shape() == channels, "batch_norm", "{} needs one element for each channel of {}, found {}", name,
          x.shape().text(), v.shape().text());
    check_alike("batch_norm", x, v, name);
  };
  check_one(gain, "gain");
  check_one(bias, "bias");
  check_one(running_mean, "running_mean");
  check_one(running_var, "running_var");
}

/// The gradient to write or, where x has one that this node may add into, to add to: the kernel then saves
/// the pass of the addition.
struct InputGradient {
  Tensor tensor;
  bool add;

  InputGradient(const Var& x, const Tensor& gy) : add(static_cast<bool>(x.grad())) {
    tensor = add ? x.grad_buffer() : reused_or_new(gy);
  }
};

void batch_norm_backward(const BatchNormOptions& o, const Tensor& mean, const Tensor& var, const Tensor& gy,
                         std::span<const Var> in) {
  const Var &x = in[0], &gain = in[1], &bias = in[2];
  const std::int64_t channels = x.shape()[-1], rows = channels ? x.size() / channels : 0;
  Tensor gx, ggain, gbias;
  bool add = false;
  if (x.wants_grad()) {
    const InputGradient g(x, gy);
    gx = g.tensor;
    add = g.add;
  }
  if (gain.wants_grad()) ggain = gain.grad_buffer();
  if (bias.wants_grad()) gbias = bias.grad_buffer();
  if (gy.size() > 0) {
    const Tensor workspace =
        Tensor::empty(Shape{kernels::batch_norm_workspace(rows, channels)}, gy.dtype(), gy.device());
    dispatch(gy.device(), gy.dtype(), "batch_norm backward", [&]<class T>(auto& q) {
      const auto data = [](const Tensor& t) { return t ? t.data<T>() : nullptr; };
      kernels::batch_norm_backward<T>(q, rows, channels, o.eps, o.relu, o.training, x.value().data<T>(),
                                      mean.data<T>(), var.data<T>(), gain.value().data<T>(),
                                      bias.value().data<T>(), gy.data<T>(),
                                      {data(gx), add, data(ggain), data(gbias)}, workspace.data<T>());
    });
  }
  if (gx && !add) x.add_grad(std::move(gx));
}

}  // namespace

Var batch_norm(const Var& x, const Var& gain, const Var& bias, const Tensor& running_mean,
               const Tensor& running_var, const BatchNormOptions& o) {
  check_batch_norm(x, gain, bias, running_mean, running_var);
  const std::int64_t channels = x.shape()[-1], rows = channels ? x.size() / channels : 0;
  const auto like = [&](const Shape& shape) { return Tensor::empty(shape, x.dtype(), x.device()); };
  Tensor y = like(x.shape());
  Tensor mean = o.training ? like(gain.shape()) : running_mean.clone();  // the running ones may change
  Tensor var = o.training ? like(gain.shape()) : running_var.clone();    // before the backward pass
  if (y.size() > 0) {
    dispatch(x.device(), x.dtype(), "batch_norm", [&]<class T>(auto& q) {
      const Tensor value = x.value();
      if (o.training) {
        const Tensor workspace = like(Shape{kernels::batch_norm_workspace(rows, channels)});
        kernels::batch_norm_statistics<T>(q, rows, channels, value.data<T>(), mean.data<T>(), var.data<T>(),
                                          workspace.data<T>());
        if (!recomputing())
          kernels::batch_norm_update<T>(q, rows, channels, o.momentum, mean.data<T>(), var.data<T>(),
                                        running_mean.data<T>(), running_var.data<T>());
      }
      kernels::batch_norm_forward<T>(q, rows, channels, o.eps, o.relu, value.data<T>(), mean.data<T>(),
                                     var.data<T>(), gain.value().data<T>(), bias.value().data<T>(),
                                     y.data<T>());
    });
  }
  return Var::result(std::move(y), {x, gain, bias}, [o, mean, var](const Tensor& gy, auto in) {
    batch_norm_backward(o, mean, var, gy, in);
  });
}

namespace {

kernels::PoolGeometry pool_geometry(Where where, const Var& x, const PoolOptions& o) {
  check(x.shape().rank() == 4, where, "x must be (n, h, w, c), found {}", x.shape().text());
  kernels::PoolGeometry g{.n = x.shape()[0],
                          .h = x.shape()[1],
                          .w = x.shape()[2],
                          .c = x.shape()[3],
                          .kernel = {},
                          .stride = {},
                          .padding = {}};
  const std::int64_t size[2] = {g.h, g.w};
  for (int i = 0; i < 2; ++i) {
    g.kernel[i] = o.kernel[i];
    g.stride[i] = o.stride[i];
    g.padding[i] = o.padding[i];
    constexpr std::int64_t kMost = std::int64_t{1} << 29;
    check(g.kernel[i] >= 1 && g.stride[i] >= 1 && g.kernel[i] <= kMost && g.stride[i] <= kMost, where,
          "kernel and stride must be between 1 and {}, found {} and {}", kMost, g.kernel[i], g.stride[i]);
    check(g.padding[i] >= 0 && 2 * g.padding[i] <= g.kernel[i], where,
          "the padding must be between 0 and half the kernel of {}, found {}", g.kernel[i], g.padding[i]);
    check(size[i] + 2 * g.padding[i] >= g.kernel[i], where,
          "a window of {} with padding {} does not fit an image of {}x{}", g.kernel[i], g.padding[i], g.h,
          g.w);
  }
  check(g.h * g.w <= std::int64_t{1} << 30, where, "an image of {}x{} is too large", g.h, g.w);
  return g;
}

Tensor pooled(const kernels::PoolGeometry& g, DType dtype, Device device) {
  return Tensor::empty(Shape{g.n, g.out_h(), g.out_w(), g.c}, dtype, device);
}

}  // namespace

Var max_pool(const Var& x, const PoolOptions& options) {
  const kernels::PoolGeometry g = pool_geometry("max_pool", x, options);
  Tensor y = pooled(g, x.dtype(), x.device());
  Tensor winner = pooled(g, DType::i32, x.device());
  if (y.size() > 0) {
    dispatch(x.device(), x.dtype(), "max_pool", [&]<class T>(auto& q) {
      kernels::max_pool_forward<T>(q, g, x.value().data<T>(), y.data<T>(), winner.data<std::int32_t>());
    });
  }
  return Var::result(std::move(y), {x}, [g, winner](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = Tensor::empty(in[0].shape(), gy.dtype(), gy.device());
    if (gx.size() > 0) {
      dispatch(gy.device(), gy.dtype(), "max_pool backward", [&]<class T>(auto& q) {
        kernels::max_pool_backward<T>(q, g, gy.data<T>(), winner.data<std::int32_t>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

Var avg_pool(const Var& x, const PoolOptions& options) {
  const kernels::PoolGeometry g = pool_geometry("avg_pool", x, options);
  const bool count_padding = options.count_padding;
  Tensor y = pooled(g, x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch(x.device(), x.dtype(), "avg_pool", [&]<class T>(auto& q) {
      kernels::avg_pool_forward<T>(q, g, count_padding, x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {x}, [g, count_padding](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = Tensor::empty(in[0].shape(), gy.dtype(), gy.device());
    if (gx.size() > 0) {
      dispatch(gy.device(), gy.dtype(), "avg_pool backward", [&]<class T>(auto& q) {
        kernels::avg_pool_backward<T>(q, g, count_padding, gy.data<T>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

Var global_avg_pool(const Var& x) {
  check(x.shape().rank() == 4 && x.shape()[1] * x.shape()[2] > 0, "global_avg_pool",
        "x must be (n, h, w, c) with at least one pixel, found {}", x.shape().text());
  const std::int64_t n = x.shape()[0], pixels = x.shape()[1] * x.shape()[2], c = x.shape()[3];
  Tensor y = Tensor::empty(Shape{n, c}, x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch(x.device(), x.dtype(), "global_avg_pool", [&]<class T>(auto& q) {
      kernels::global_avg_pool_forward<T>(q, n, pixels, c, x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {x}, [=](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = Tensor::empty(in[0].shape(), gy.dtype(), gy.device());
    if (gx.size() > 0) {
      dispatch(gy.device(), gy.dtype(), "global_avg_pool backward", [&]<class T>(auto& q) {
        kernels::global_avg_pool_backward<T>(q, n, pixels, c, gy.data<T>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

Var resize_bilinear(const Var& x, std::int64_t out_h, std::int64_t out_w) {
  check(x.shape().rank() == 4 && x.shape()[1] * x.shape()[2] > 0 && out_h > 0 && out_w > 0, "resize_bilinear",
        "x must be (n, h, w, c) with at least one pixel, and so must y, found {} to {}x{}", x.shape().text(),
        out_h, out_w);
  const kernels::ResizeGeometry g{x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3], out_h, out_w};
  Tensor y = Tensor::empty(Shape{g.n, out_h, out_w, g.c}, x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch(x.device(), x.dtype(), "resize_bilinear", [&]<class T>(auto& q) {
      kernels::resize_bilinear_forward<T>(q, g, x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {x}, [=](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = Tensor::empty(in[0].shape(), gy.dtype(), gy.device());
    if (gx.size() > 0) {
      dispatch(gy.device(), gy.dtype(), "resize_bilinear backward", [&]<class T>(auto& q) {
        kernels::resize_bilinear_backward<T>(q, g, gy.data<T>(), gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

}  // namespace ssn
