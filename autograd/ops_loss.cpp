#include <algorithm>

#include "autograd/label_ranks.h"
#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "kernels/loss.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {
void check_labels(Where where, const Tensor& labels, std::int64_t rows, std::int64_t classes, Device device) {
  check(labels.dtype() == DType::i32 && labels.shape() == Shape{rows} && labels.device() == device, where,
        "the labels must be i32 of shape {} on {}, found {} of shape {} on {}", rows, name_of(device),
        name_of(labels.dtype()), labels.shape().text(), name_of(labels.device()));
  if (device != Device::cpu || rows == 0) return;  // on the GPU a label out of range gives NaN
  const auto values = labels.span<std::int32_t>();
  const auto largest = std::max_element(values.begin(), values.end());
  check(*largest < classes, where, "the label of row {} is {}, but there are {} classes",
        largest - values.begin(), *largest, classes);
}

void check_logits(const Var& logits, Where where) {
  check(logits.shape().rank() == 2 && logits.shape()[1] > 0, where,
        "the logits must be (rows, classes) with at least one class, found {}", logits.shape().text());
}
}  // namespace

Var cross_entropy(const Var& logits, const Tensor& labels, double smoothing, double scale) {
  check_logits(logits, "cross_entropy");
  check(smoothing >= 0 && smoothing < 1, "cross_entropy", "the smoothing must be in [0, 1), found {}",
        smoothing);
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  check_labels("cross_entropy", labels, rows, classes, logits.device());
  Tensor loss = Tensor::zeros(Shape{}, logits.dtype(), logits.device());
  const Tensor statistics = Tensor::empty(Shape{rows, 2}, logits.dtype(), logits.device());
  if (rows > 0) {
    const Tensor losses = Tensor::empty(Shape{rows}, logits.dtype(), logits.device());
    dispatch(loss.device(), loss.dtype(), "cross_entropy", [&]<class T>(auto& q) {
      kernels::cross_entropy_forward<T>(q, rows, classes, smoothing, logits.value().data<T>(),
                                        labels.data<std::int32_t>(), losses.data<T>(), statistics.data<T>());
      kernels::scaled_sum<T>(q, rows, scale, losses.data<T>(), loss.data<T>());
    });
  }
  return Var::result(std::move(loss), {logits}, [=](const Tensor& gy, std::span<const Var> in) {
    Tensor gx = Tensor::empty(in[0].shape(), gy.dtype(), gy.device());
    if (rows > 0) {
      dispatch(gy.device(), gy.dtype(), "cross_entropy backward", [&]<class T>(auto& q) {
        kernels::cross_entropy_backward<T>(q, rows, classes, smoothing, scale, in[0].value().data<T>(),
                                           statistics.data<T>(), labels.data<std::int32_t>(), gy.data<T>(),
                                           gx.data<T>());
      });
    }
    in[0].add_grad(std::move(gx));
  });
}

Var label_ranks(const Var& logits, const Tensor& labels) {
  check_logits(logits, "label_ranks");
  const std::int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  check_labels("label_ranks", labels, rows, classes, logits.device());
  Tensor ranks = Tensor::empty(Shape{rows}, logits.dtype(), logits.device());
  dispatch(ranks.device(), ranks.dtype(), "label_ranks", [&]<class T>(auto& q) {
    kernels::label_ranks<T>(q, rows, classes, logits.value().data<T>(), labels.data<std::int32_t>(),
                            ranks.data<T>());
  });
  return Var::constant(std::move(ranks));
}

}  // namespace ssn
