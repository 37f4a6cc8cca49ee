#include "autograd/ops.h"
#include "autograd/scratch.h"
#include "runtime/dispatch.h"

namespace ssn {
namespace {

template <class From, class To, class Queue>
void reorder(Queue& q, const Shape& weight, const Tensor& from, const Tensor& to, bool channels_last) {
  const std::int64_t o = weight[0], c = weight[1], taps = weight[2] * weight[3];
  if (channels_last)
    kernels::to_channels_last(q, o, c, taps, from.data<From>(), to.data<To>());
  else
    kernels::from_channels_last(q, o, c, taps, from.data<From>(), to.data<To>());
}

}  // namespace

Shape shape_in(const WeightFormat& format, const Shape& weight) {
  if (!format.channels_last || weight.rank() != 4) return weight;
  return {weight[0], weight[2], weight[3], weight[1]};
}

Tensor reformatted(const Tensor& w, const Shape& weight, const WeightFormat& from, const WeightFormat& to) {
  const DType type = to.half ? DType::bf16 : wider(w.dtype());
  const Shape shape = shape_in(to, weight);
  const bool moves = from.channels_last != to.channels_last && weight.rank() == 4 && weight[1] > 1 &&
                     weight[2] * weight[3] > 1;
  if (!moves || w.size() == 0) return converted(w, type).view(shape);
  const Tensor result = Tensor::empty(shape, type, w.device());
  dispatch_mixed(w.device(), w.dtype(), "weight_format", [&]<class T>(auto& q) {
    if constexpr (std::is_same_v<T, double>)
      reorder<T, T>(q, weight, w, result, to.channels_last);
    else if (to.half)
      reorder<T, bf16>(q, weight, w, result, to.channels_last);
    else
      reorder<T, float>(q, weight, w, result, to.channels_last);
  });
  return result;
}

}  // namespace ssn
