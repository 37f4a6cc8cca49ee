#include "kernels/conv.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/cudnn_plan.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/direct_conv.h"
#include "kernels/elementwise.h"
#include "runtime/device_memory.h"

namespace ssn::kernels {
namespace {

/// None of a depthwise kernel's grids becomes too large.
bool is_depthwise(const ConvGeometry& g) {
  return g.is_depthwise() && g.kh * g.kw <= 65535;
}

/// Null for f64 and where cuDNN has none.
template <class T>
const ConvPlan* plan_of(const CudaQueue& q, const ConvGeometry& g, ConvPass pass) {
  if constexpr (std::is_same_v<T, double>) return nullptr;
  return conv_plan({g, pass, std::is_same_v<T, bf16>, std::is_same_v<T, float> && q.tf32});
}
/// The same, null too for tensors that cuDNN could not read in its large steps: parts of others.
template <class T>
const ConvPlan* plan_of(const CudaQueue& q, const ConvGeometry& g, ConvPass pass, const T* x, const T* y,
                        const void* weight) {
  std::uintptr_t places = 0;
  for (const void* p : {static_cast<const void*>(x), static_cast<const void*>(y), weight})
    places |= reinterpret_cast<std::uintptr_t>(p);
  return places % kCudnnAlignment == 0 ? plan_of<T>(q, g, pass) : nullptr;
}

/// cuDNN's gradient of the weight is of x's type: what the workspace has for it, in front of cuDNN's own.
template <class T>
std::size_t gradient_bytes(const ConvGeometry& g) {
  constexpr std::size_t kStep = kCudnnWorkspaceAlignment;
  if constexpr (std::is_same_v<T, Wider<T>>) return 0;
  return (static_cast<std::size_t>(g.weight_size()) * sizeof(T) + kStep - 1) / kStep * kStep;
}

template <class T>
void clear(CudaQueue& q, T* data, std::int64_t size) {
  memory::fill_bytes(q, data, 0, static_cast<std::size_t>(size) * sizeof(T));
}

}  // namespace

bool conv_takes_bf16(CudaQueue&) {
  return cuda_compute_capability() >= 80;
}

template <class T>
WeightFormat conv_weight_format(CudaQueue&, const ConvGeometry& g) {
  if (is_depthwise(g) || std::is_same_v<T, double>) return {};
  return {.half = std::is_same_v<T, bf16>, .channels_last = true};
}

template <class T>
std::size_t conv_workspace(CudaQueue& q, const ConvGeometry& g, ConvPass pass) {
  if (g.is_empty()) return 0;
  if (is_depthwise(g)) return depthwise::workspace<T>(q, g);
  const ConvPlan* plan = plan_of<T>(q, g, pass);
  if (!plan) return 0;
  return workspace_of(*plan) + (pass == ConvPass::weight ? gradient_bytes<T>(g) : 0);
}

template <class T>
void conv_forward(CudaQueue& q, const ConvGeometry& g, const T* x, const void* weight, T* y,
                  void* workspace) {
  if (g.is_empty()) return clear(q, y, g.y_size());
  if (is_depthwise(g)) return depthwise::forward(q, g, x, static_cast<const Wider<T>*>(weight), y, workspace);
  const ConvPlan* plan = plan_of(q, g, ConvPass::forward, x, y, weight);
  if (!plan) return direct::forward(q, g, x, static_cast<const T*>(weight), y);
  run(q, "conv_forward", *plan, x, weight, y, workspace);
}

template <class T>
void conv_backward_data(CudaQueue& q, const ConvGeometry& g, const T* gy, const void* weight, T* gx,
                        void* workspace) {
  if (g.is_empty()) return clear(q, gx, g.x_size());
  if (is_depthwise(g))
    return depthwise::backward_data(q, g, gy, static_cast<const Wider<T>*>(weight), gx, workspace);
  const ConvPlan* plan = plan_of(q, g, ConvPass::data, gx, gy, weight);
  if (!plan) return direct::backward_data(q, g, gy, static_cast<const T*>(weight), gx);
  run(q, "conv_backward_data", *plan, gx, weight, gy, workspace);
}

template <class T>
void conv_backward_weight(CudaQueue& q, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                          void* workspace) {
  if (g.is_empty()) return clear(q, gweight, g.weight_size());
  if (is_depthwise(g)) return depthwise::backward_weight(q, g, x, gy, gweight, workspace);
  const ConvPlan* plan = plan_of(q, g, ConvPass::weight, x, gy, gweight);
  if (!plan) return direct::backward_weight(q, g, x, gy, gweight);
  if constexpr (std::is_same_v<T, Wider<T>>) {
    run(q, "conv_backward_weight", *plan, x, gweight, gy, workspace);
  } else {
    auto* const gw = static_cast<T*>(workspace);
    run(q, "conv_backward_weight", *plan, x, gw, gy, static_cast<char*>(workspace) + gradient_bytes<T>(g));
    convert(q, g.weight_size(), gw, gweight);
  }
}

template WeightFormat conv_weight_format<bf16>(CudaQueue&, const ConvGeometry&);
template WeightFormat conv_weight_format<float>(CudaQueue&, const ConvGeometry&);
template WeightFormat conv_weight_format<double>(CudaQueue&, const ConvGeometry&);
template std::size_t conv_workspace<bf16>(CudaQueue&, const ConvGeometry&, ConvPass);
template std::size_t conv_workspace<float>(CudaQueue&, const ConvGeometry&, ConvPass);
template std::size_t conv_workspace<double>(CudaQueue&, const ConvGeometry&, ConvPass);
template void conv_forward<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const void*, bf16*, void*);
template void conv_forward<float>(CudaQueue&, const ConvGeometry&, const float*, const void*, float*, void*);
template void conv_forward<double>(CudaQueue&, const ConvGeometry&, const double*, const void*, double*,
                                   void*);
template void conv_backward_data<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const void*, bf16*,
                                       void*);
template void conv_backward_data<float>(CudaQueue&, const ConvGeometry&, const float*, const void*, float*,
                                        void*);
template void conv_backward_data<double>(CudaQueue&, const ConvGeometry&, const double*, const void*, double*,
                                         void*);
template void conv_backward_weight<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const bf16*, float*,
                                         void*);
template void conv_backward_weight<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*,
                                          void*);
template void conv_backward_weight<double>(CudaQueue&, const ConvGeometry&, const double*, const double*,
                                           double*, void*);

}  // namespace ssn::kernels
