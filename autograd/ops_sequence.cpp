#include <algorithm>

#include "autograd/flops.h"
#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "runtime/dispatch.h"
#include "runtime/dry_run.h"

namespace ssn {
namespace {

template <class T>
T* data_or_null(const Tensor& t) {
  return t ? t.data<T>() : nullptr;
}

/// i32 of this shape on x's device.
void check_integers(Where where, const Var& x, const Tensor& t, const Shape& shape, std::string_view name) {
  check(t.dtype() == DType::i32 && t.shape() == shape && t.device() == x.device(), where,
        "the {} must be i32 of shape {} on {}, found {} of shape {} on {}", name, shape.text(),
        name_of(x.device()), name_of(t.dtype()), t.shape().text(), name_of(t.device()));
}
/// On the CPU: all in [least, most].
void check_range(Where where, const Tensor& t, std::int64_t least, std::int64_t most, std::string_view name) {
  if (t.device() != Device::cpu || dry_run()) return;
  const auto values = t.span<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i)
    check(values[i] >= least && values[i] <= most, where, "{} {} is {}; it must be in {} to {}", name, i,
          values[i], least, most);
}

/// inputs: x, gain, bias and, for a sum, r
void layer_norm_backward(const Tensor& mean, const Tensor& rstd, const Tensor& gy, std::span<const Var> in) {
  const Var &x = in[0], &gain = in[1], &bias = in[2];
  const bool sum = in.size() > 3;
  const std::int64_t cols = gain.size(), rows = cols ? x.size() / cols : 0;
  Tensor gs, ggain, gbias;
  if (x.wants_grad() || (sum && in[3].wants_grad())) gs = reused_or_new(gy);
  if (gain.wants_grad()) ggain = gain.grad_buffer();
  if (bias.wants_grad()) gbias = bias.grad_buffer();
  if (gy.size() > 0) {
    const Tensor workspace =
        Tensor::empty(Shape{kernels::layer_norm_workspace(rows, cols)}, mean.dtype(), gy.device());
    dispatch_mixed(gy.device(), gy.dtype(), "layer_norm backward", [&]<class T>(auto& q) {
      kernels::layer_norm_backward<T>(
          q, rows, cols, x.value().data<T>(), sum ? in[3].value().data<T>() : nullptr, mean.data<Wider<T>>(),
          rstd.data<Wider<T>>(), gain.value().data<Wider<T>>(), gy.data<T>(),
          {data_or_null<T>(gs), data_or_null<Wider<T>>(ggain), data_or_null<Wider<T>>(gbias)},
          workspace.data<Wider<T>>());
    });
  }
  if (sum) in[3].add_grad(gs);
  x.add_grad(std::move(gs));
}

/// Of x, or of x + r.
Var layer_norm_of(const Var& x, const Var& r, const Var& gain, const Var& bias, double eps) {
  check(x.shape().rank() >= 1, "layer_norm", "x must have an axis to normalise over, found a scalar");
  const Shape columns{x.shape()[-1]};
  for (const auto& [v, name] : {std::pair(&gain, "gain"), std::pair(&bias, "bias")}) {
    check(v->shape() == columns, "layer_norm",
          "{} needs one element for each of the last axis of {}, found {}", name, x.shape().text(),
          v->shape().text());
    check_parameter("layer_norm", x, *v, name);
  }
  const std::int64_t cols = gain.size(), rows = cols ? x.size() / cols : 0;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor mean = Tensor::empty({rows}, wider(x.dtype()), x.device()),
               rstd = Tensor::empty({rows}, wider(x.dtype()), x.device());
  if (y.size() > 0) {
    dispatch_mixed(y.device(), y.dtype(), "layer_norm", [&]<class T>(auto& q) {
      const Tensor rv = r ? r.value() : Tensor();
      kernels::layer_norm_forward<T>(q, rows, cols, eps, x.value().data<T>(), data_or_null<T>(rv),
                                     gain.value().data<Wider<T>>(), bias.value().data<Wider<T>>(),
                                     y.data<T>(), mean.data<Wider<T>>(), rstd.data<Wider<T>>());
    });
  }
  std::vector<Var> inputs{x, gain, bias};
  if (r) inputs.push_back(r);
  return Var::result(std::move(y), std::move(inputs),
                     [mean, rstd](const Tensor& gy, auto in) { layer_norm_backward(mean, rstd, gy, in); });
}

}  // namespace

Var layer_norm(const Var& x, const Var& gain, const Var& bias, double eps) {
  return layer_norm_of(x, {}, gain, bias, eps);
}

Var add_layer_norm(const Var& x, const Var& r, const Var& gain, const Var& bias, double eps) {
  check(x.shape() == r.shape(), "layer_norm", "both must have the same shape, found {} and {}",
        x.shape().text(), r.shape().text());
  check_alike("layer_norm", x, r, "the second");
  return layer_norm_of(x, r, gain, bias, eps);
}

Var embedding(const Var& table, const Tensor& ids) {
  check(table.shape().rank() == 2, "embedding", "the table must be (rows, columns), found {}",
        table.shape().text());
  const std::int64_t count = ids.size(), rows = table.shape()[0], cols = table.shape()[1];
  check_integers("embedding", table, ids, {count}, "ids");
  check_range("embedding", ids, 0, rows - 1, "id");
  Tensor y = Tensor::empty({count, cols}, table.dtype(), table.device());
  if (y.size() > 0) {
    dispatch_mixed(y.device(), y.dtype(), "embedding", [&]<class T>(auto& q) {
      kernels::embedding_forward<T>(q, count, rows, cols, table.value().data<T>(), ids.data<std::int32_t>(),
                                    y.data<T>());
    });
  }
  return Var::result(std::move(y), {table}, [=](const Tensor& gy, std::span<const Var> in) {
    const bool half = gy.dtype() == DType::bf16;  // summed apart, in f32
    const Tensor gtable = half ? Tensor::zeros(in[0].shape(), DType::f32, gy.device()) : in[0].grad_buffer();
    if (gy.size() > 0)
      dispatch_mixed(gy.device(), gy.dtype(), "embedding backward", [&]<class T>(auto& q) {
        kernels::embedding_backward<T>(q, count, rows, cols, gy.data<T>(), ids.data<std::int32_t>(),
                                       gtable.data<Wider<T>>());
      });
    if (half) in[0].add_grad(converted(gtable, DType::bf16));
  });
}

Tensor places(std::int64_t n, std::int64_t length, Device device) {
  Tensor ids = Tensor::empty({n * length}, DType::i32, device);
  if (!dry_run())
    on_queue(device, "places",
             [&](auto& q) { kernels::places(q, ids.size(), length, ids.data<std::int32_t>()); });
  return ids;
}

namespace {

/// Allocated outside of dispatch, so that a dry run sees it.
Tensor attention_workspace(const Tensor& like, const kernels::AttentionShape& shape) {
  const std::int64_t elements = on_queue(like.device(), "attention", [&](auto& queue) {
    return like.dtype() == DType::bf16  ? kernels::attention_workspace<bf16>(queue, shape)
           : like.dtype() == DType::f32 ? kernels::attention_workspace<float>(queue, shape)
                                        : kernels::attention_workspace<double>(queue, shape);
  });
  return Tensor::empty({elements}, wider(like.dtype()), like.device());
}

kernels::AttentionShape checked_attention(const Var& q, const Var& k, const Var& v, const Tensor& lengths,
                                          const AttentionOptions& o) {
  const Where where = "attention";
  check_alike(where, q, k, "the keys");
  check_alike(where, q, v, "the values");
  const std::int64_t n = lengths.size();
  check_integers(where, q, lengths, {n}, "lengths");
  check(q.shape().rank() == 2 && k.shape() == v.shape() && k.shape().rank() == 2 &&
            q.shape()[1] == k.shape()[1] &&
            (n == 0 ? q.size() + k.size() == 0 : q.shape()[0] % n == 0 && k.shape()[0] % n == 0),
        where,
        "queries, keys and values are {}, {} and {}: expected matrices of the same width, whose rows are a "
        "multiple of the {} samples",
        q.shape().text(), k.shape().text(), v.shape().text(), n);
  check(o.heads >= 1 && q.shape()[1] % o.heads == 0, where, "{} columns do not divide into {} heads",
        q.shape()[1], o.heads);
  const std::int64_t width = q.shape()[1] / o.heads, widest = q.dtype() == DType::f64
                                                                  ? kernels::kWidestCudaHead<double>
                                                                  : kernels::kWidestCudaHead<float>;
  check(q.device() == Device::cpu || width <= widest, where,
        "on CUDA a head has at most {} columns, found {}: use more heads or --device cpu", widest, width);
  check(o.dropout >= 0 && o.dropout < 1, where, "the dropout must be in [0, 1), found {}", o.dropout);
  const std::int64_t queries = n ? q.shape()[0] / n : 0, keys = n ? k.shape()[0] / n : 0;
  check(queries <= std::int64_t{1} << 16 && keys <= std::int64_t{1} << 16, where,
        "at most 65536 tokens a sample are possible, found {} and {}", queries, keys);
  check_range(where, lengths, 1, keys, "length");
  return {n, o.heads, width, queries, keys};
}

}  // namespace

Var attention(const Var& q, const Var& k, const Var& v, const Tensor& lengths, const AttentionOptions& o) {
  const kernels::AttentionShape shape = checked_attention(q, k, v, lengths, o);
  const kernels::AttentionDropout dropout{o.dropout, o.random, o.first};
  const Tensor y = Tensor::empty(q.shape(), q.dtype(), q.device());
  const Tensor log_sum =
      Tensor::empty({shape.samples, shape.heads, shape.queries}, wider(q.dtype()), q.device());
  count_multiply_adds(2 * y.size() * shape.keys);
  if (y.size() > 0) {
    const Tensor workspace = attention_workspace(y, shape);
    dispatch_mixed(y.device(), y.dtype(), "attention", [&]<class T>(auto& queue) {
      kernels::attention_forward<T>(queue, shape, dropout, q.value().data<T>(), k.value().data<T>(),
                                    v.value().data<T>(), lengths.data<std::int32_t>(), y.data<T>(),
                                    log_sum.data<Wider<T>>(), workspace.data<Wider<T>>());
    });
  }
  return Var::result(y, {q, k, v}, [=](const Tensor& gy, std::span<const Var> in) {
    Tensor grads[3];
    for (int i = 0; i < 3; ++i) grads[i] = Tensor::empty(in[i].shape(), gy.dtype(), gy.device());
    count_multiply_adds(5 * gy.size() * shape.keys);  // the scores again, and two products' gradients
    if (gy.size() > 0) {
      const Tensor workspace = attention_workspace(gy, shape);
      dispatch_mixed(gy.device(), gy.dtype(), "attention backward", [&]<class T>(auto& queue) {
        kernels::attention_backward<T>(
            queue, shape, dropout, in[0].value().data<T>(), in[1].value().data<T>(), in[2].value().data<T>(),
            lengths.data<std::int32_t>(), y.data<T>(), log_sum.data<Wider<T>>(), gy.data<T>(),
            grads[0].data<T>(), grads[1].data<T>(), grads[2].data<T>(), workspace.data<Wider<T>>());
      });
    }
    for (int i = 0; i < 3; ++i) in[i].add_grad(std::move(grads[i]));
  });
}

}  // namespace ssn
