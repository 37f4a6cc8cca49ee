#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "autograd/scratch.h"
#include "kernels/norm.h"
#include "kernels/pool.h"
#include "kernels/resize.h"
#include "kernels/scale.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

/// The shape of the inputs put together along the last axis.
Shape together(std::span<const Var> xs) {
  check(!xs.empty(), "batch_norm", "there is no input");
  Shape shape = xs[0].shape();
  check(shape.rank() >= 2, "batch_norm", "x must be (rows, channels) or (n, h, w, channels), found {}",
        shape.text());
  std::int64_t channels = 0;
  for (const Var& x : xs) {
    Shape like = x.shape();
    check(like.rank() == shape.rank(), "batch_norm", "the inputs differ beside their channels: {} and {}",
          shape.text(), like.text());
    channels += like[-1];
    for (int i = 0; i + 1 < shape.rank(); ++i)
      check(like[i] == shape[i], "batch_norm", "the inputs differ beside their channels: {} and {}",
            shape.text(), like.text());
    check_alike("batch_norm", xs[0], x, "an input");
  }
  std::vector<std::int64_t> sizes;
  for (int i = 0; i + 1 < shape.rank(); ++i) sizes.push_back(shape[i]);
  sizes.push_back(channels);
  return Shape(sizes);
}

void check_batch_norm(const Shape& together, const Var& x, const Var& gain, const Var& bias,
                      const Tensor& running_mean, const Tensor& running_var) {
  const Shape channels{together[-1]};
  const auto check_one = [&](const auto& v, std::string_view name) {
    check(v.shape() == channels, "batch_norm", "{} needs one element for each channel of {}, found {}", name,
          together.text(), v.shape().text());
    check_parameter("batch_norm", x, v, name);
  };
  check_one(gain, "gain");
  check_one(bias, "bias");
  check_one(running_mean, "running_mean");
  check_one(running_var, "running_var");
}

/// f(input, its rows, its channels, how many are before) for inputs that have elements.
template <class F>
void each_input(std::span<const Var> xs, F&& f) {
  std::int64_t before = 0;
  for (const Var& x : xs) {
    const std::int64_t channels = x.shape()[-1];
    if (x.size() > 0) f(x, x.size() / channels, channels, before);
    before += channels;
  }
}

/// The gradient to write or, where x has one that this node may add into, to add to: the kernel then saves
/// the pass of the addition.
struct InputGradient {
  Tensor tensor;
  bool add = false;

  InputGradient(const Var& x, const Tensor& gy) {
    if (!x.wants_grad()) return;
    add = static_cast<bool>(x.grad());
    if (add)
      tensor = x.grad_buffer();
    else
      tensor = x.size() == gy.size() ? reused_or_new(gy) : Tensor::empty(x.shape(), gy.dtype(), gy.device());
  }
};

/// in: the inputs, gain, bias
void batch_norm_backward(const BatchNormOptions& o, const Tensor& mean, const Tensor& var, const Tensor& gy,
                         std::span<const Var> in) {
  const std::span<const Var> xs = in.first(in.size() - 2);
  const Var &gain = in[in.size() - 2], &bias = in.back();
  const Tensor ggain = gain.wants_grad() ? gain.grad_buffer() : Tensor();
  const Tensor gbias = bias.wants_grad() ? bias.grad_buffer() : Tensor();
  each_input(xs, [&](const Var& x, std::int64_t rows, std::int64_t channels, std::int64_t before) {
    InputGradient g(x, gy);
    const Tensor workspace =
        Tensor::empty(Shape{kernels::batch_norm_workspace(rows, channels)}, mean.dtype(), gy.device());
    dispatch_mixed(gy.device(), gy.dtype(), "batch_norm backward", [&]<class T>(auto& q) {
      const auto data = [&](const Tensor& t) { return t ? t.data<Wider<T>>() + before : nullptr; };
      const kernels::NormGradients<T> out{g.tensor ? g.tensor.data<T>() : nullptr, g.add, data(ggain),
                                          data(gbias)};
      kernels::batch_norm_backward<T>(q, rows, channels, o.eps, o.activation, o.training, x.value().data<T>(),
                                      data(mean), data(var), data(gain.value()), data(bias.value()),
                                      gy.data<T>() + before, gain.size(), out, workspace.data<Wider<T>>());
    });
    if (g.tensor && !g.add) x.add_grad(std::move(g.tensor));
  });
}

}  // namespace

Var batch_norm(std::span<const Var> xs, const Var& gain, const Var& bias, const Tensor& running_mean,
               const Tensor& running_var, const BatchNormOptions& o) {
  const Shape shape = together(xs);
  check_batch_norm(shape, xs[0], gain, bias, running_mean, running_var);
  const auto like = [&](const Shape& s) { return Tensor::empty(s, xs[0].dtype(), xs[0].device()); };
  const auto statistic = [&](const Shape& s) { return Tensor::empty(s, gain.dtype(), gain.device()); };
  Tensor y = like(shape);
  Tensor mean = o.training ? statistic(gain.shape()) : running_mean.clone();  // the running ones may change
  Tensor var = o.training ? statistic(gain.shape()) : running_var.clone();    // before the backward pass
  each_input(xs, [&](const Var& x, std::int64_t rows, std::int64_t channels, std::int64_t before) {
    const Tensor workspace = statistic(Shape{o.training ? kernels::batch_norm_workspace(rows, channels) : 0});
    dispatch_mixed(x.device(), x.dtype(), "batch_norm", [&]<class T>(auto& q) {
      const auto data = [&](const Tensor& t) { return t.data<Wider<T>>() + before; };
      const Tensor value = x.value();
      if (o.training)
        kernels::batch_norm_statistics<T>(q, rows, channels, value.data<T>(), data(mean), data(var),
                                          workspace.data<Wider<T>>());
      if (o.training && !recomputing())
        kernels::batch_norm_update<Wider<T>>(q, rows, channels, o.momentum, data(mean), data(var),
                                             data(running_mean), data(running_var));
      kernels::batch_norm_forward<T>(q, rows, channels, o.eps, o.activation, value.data<T>(), data(mean),
                                     data(var), data(gain.value()), data(bias.value()), y.data<T>() + before,
                                     shape[-1]);
    });
  });
  std::vector<Var> inputs(xs.begin(), xs.end());
  inputs.insert(inputs.end(), {gain, bias});
  return Var::result(std::move(y), std::move(inputs), [o, mean, var](const Tensor& gy, auto in) {
    batch_norm_backward(o, mean, var, gy, in);
  });
}

Var batch_norm(const Var& x, const Var& gain, const Var& bias, const Tensor& running_mean,
               const Tensor& running_var, const BatchNormOptions& options) {
  return batch_norm({&x, 1}, gain, bias, running_mean, running_var, options);
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
    dispatch_mixed(x.device(), x.dtype(), "max_pool", [&]<class T>(auto& q) {
      kernels::max_pool_forward<T>(q, g, x.value().data<T>(), y.data<T>(), winner.data<std::int32_t>());
    });
  }
  return Var::result(std::move(y), {x}, [g, winner](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = Tensor::empty(in[0].shape(), gy.dtype(), gy.device());
    if (gx.size() > 0) {
      dispatch_mixed(gy.device(), gy.dtype(), "max_pool backward", [&]<class T>(auto& q) {
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
    dispatch_mixed(x.device(), x.dtype(), "avg_pool", [&]<class T>(auto& q) {
      kernels::avg_pool_forward<T>(q, g, count_padding, x.value().data<T>(), y.data<T>());
    });
  }
  return Var::result(std::move(y), {x}, [g, count_padding](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = Tensor::empty(in[0].shape(), gy.dtype(), gy.device());
    if (gx.size() > 0) {
      dispatch_mixed(gy.device(), gy.dtype(), "avg_pool backward", [&]<class T>(auto& q) {
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
  Tensor y = Tensor::empty(Shape{n, c}, wider(x.dtype()), x.device());
  if (y.size() > 0) {
    dispatch_mixed(x.device(), x.dtype(), "global_avg_pool", [&]<class T>(auto& q) {
      kernels::global_avg_pool_forward<T>(q, n, pixels, c, x.value().data<T>(), y.data<Wider<T>>());
    });
  }
  return Var::result(std::move(y), {x}, [=](const Tensor& gy, std::span<const Var> in) {
    const bool add = static_cast<bool>(in[0].grad());  // as where the means are factors of their channels
    Tensor gx = add ? in[0].grad_buffer() : Tensor::empty(in[0].shape(), in[0].dtype(), gy.device());
    if (gx.size() > 0) {
      dispatch_mixed(gy.device(), gx.dtype(), "global_avg_pool backward", [&]<class T>(auto& q) {
        kernels::global_avg_pool_backward<T>(q, n, pixels, c, gy.data<Wider<T>>(), gx.data<T>(), add);
      });
    }
    if (!add) in[0].add_grad(std::move(gx));
  });
}

Var scale_channels(const Var& x, const Var& s) {
  check(x.shape().rank() == 4 && s.shape() == Shape{x.shape()[0], x.shape()[3]}, "scale_channels",
        "x must be (n, h, w, c) and the factors (n, c), found {} and {}", x.shape().text(), s.shape().text());
  check_parameter("scale_channels", x, s, "the factors");
  const std::int64_t n = x.shape()[0], pixels = x.shape()[1] * x.shape()[2], c = x.shape()[3];
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.size() > 0) {
    dispatch_mixed(x.device(), x.dtype(), "scale_channels", [&]<class T>(auto& q) {
      kernels::scale_channels_forward<T>(q, n, pixels, c, x.value().data<T>(), s.value().data<Wider<T>>(),
                                         y.data<T>());
    });
  }
  return Var::result(std::move(y), {x, s}, [=](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = reused_or_new(gy), gs = Tensor::empty(in[1].shape(), in[1].dtype(), gy.device());
    if (gs.size() > 0) {
      dispatch_mixed(gy.device(), gy.dtype(), "scale_channels backward", [&]<class T>(auto& q) {
        kernels::scale_channels_backward<T>(q, n, pixels, c, in[0].value().data<T>(),
                                            in[1].value().data<Wider<T>>(), gy.data<T>(), gx.data<T>(),
                                            gs.data<Wider<T>>());
      });
    }
    in[0].add_grad(std::move(gx));
    in[1].add_grad(std::move(gs));
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
