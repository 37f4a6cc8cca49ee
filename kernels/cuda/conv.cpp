#include "kernels/conv.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/conv_weight.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/direct_conv.h"
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
const ConvPlan* plan_of(const CudaQueue& q, const ConvGeometry& g, ConvPass pass, const T* x, const T* y) {
  const auto place = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y);
  return place % kCudnnAlignment == 0 ? plan_of<T>(q, g, pass) : nullptr;
}

/// In the workspace: the weight in cuDNN's layout, and behind it cuDNN's own.
template <class T>
std::size_t weight_bytes(const ConvGeometry& g) {
  constexpr std::size_t kStep = kCudnnWorkspaceAlignment;
  return (static_cast<std::size_t>(g.weight_size()) * sizeof(T) + kStep - 1) / kStep * kStep;
}
template <class T>
void* behind_weight(const ConvGeometry& g, void* workspace) {
  return static_cast<char*>(workspace) + weight_bytes<T>(g);
}

template <class T>
void clear(CudaQueue& q, T* data, std::int64_t size) {
  memory::fill_bytes(q, data, 0, static_cast<std::size_t>(size) * sizeof(T));
}

}  // namespace

template <class T>
std::size_t conv_workspace(CudaQueue& q, const ConvGeometry& g, ConvPass pass) {
  if (g.is_empty()) return 0;
  if (is_depthwise(g)) return depthwise::workspace<T>(q, g);
  const ConvPlan* plan = plan_of<T>(q, g, pass);
  return plan ? weight_bytes<T>(g) + workspace_of(*plan) : 0;
}

template <class T>
void conv_forward(CudaQueue& q, const ConvGeometry& g, const T* x, const Wider<T>* weight, T* y,
                  void* workspace) {
  if (g.is_empty()) return clear(q, y, g.y_size());
  if (is_depthwise(g)) return depthwise::forward(q, g, x, weight, y, workspace);
  const ConvPlan* plan = plan_of(q, g, ConvPass::forward, x, y);
  if (!plan) return direct::forward(q, g, x, weight, y);
  auto* const w = static_cast<T*>(workspace);
  channels_last<T>(q, g.o, g.c / g.groups, g.kh * g.kw, weight, w);
  run(q, "conv_forward", *plan, x, w, y, behind_weight<T>(g, workspace));
}

template <class T>
void conv_backward_data(CudaQueue& q, const ConvGeometry& g, const T* gy, const Wider<T>* weight, T* gx,
                        void* workspace) {
  if (g.is_empty()) return clear(q, gx, g.x_size());
  if (is_depthwise(g)) return depthwise::backward_data(q, g, gy, weight, gx, workspace);
  const ConvPlan* plan = plan_of(q, g, ConvPass::data, gx, gy);
  if (!plan) return direct::backward_data(q, g, gy, weight, gx);
  auto* const w = static_cast<T*>(workspace);
  channels_last<T>(q, g.o, g.c / g.groups, g.kh * g.kw, weight, w);
  run(q, "conv_backward_data", *plan, gx, w, gy, behind_weight<T>(g, workspace));
}

template <class T>
void conv_backward_weight(CudaQueue& q, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                          void* workspace) {
  if (g.is_empty()) return clear(q, gweight, g.weight_size());
  if (is_depthwise(g)) return depthwise::backward_weight(q, g, x, gy, gweight, workspace);
  const ConvPlan* plan = plan_of(q, g, ConvPass::weight, x, gy);
  if (!plan) return direct::backward_weight(q, g, x, gy, gweight);
  auto* const gw = static_cast<T*>(workspace);
  run(q, "conv_backward_weight", *plan, x, gw, gy, behind_weight<T>(g, workspace));
  channels_first<T>(q, g.o, g.c / g.groups, g.kh * g.kw, gw, gweight);
}

template std::size_t conv_workspace<bf16>(CudaQueue&, const ConvGeometry&, ConvPass);
template std::size_t conv_workspace<float>(CudaQueue&, const ConvGeometry&, ConvPass);
template std::size_t conv_workspace<double>(CudaQueue&, const ConvGeometry&, ConvPass);
template void conv_forward<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const float*, bf16*, void*);
template void conv_forward<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*, void*);
template void conv_forward<double>(CudaQueue&, const ConvGeometry&, const double*, const double*, double*,
                                   void*);
template void conv_backward_data<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const float*, bf16*,
                                       void*);
template void conv_backward_data<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*,
                                        void*);
template void conv_backward_data<double>(CudaQueue&, const ConvGeometry&, const double*, const double*,
                                         double*, void*);
template void conv_backward_weight<bf16>(CudaQueue&, const ConvGeometry&, const bf16*, const bf16*, float*,
                                         void*);
template void conv_backward_weight<float>(CudaQueue&, const ConvGeometry&, const float*, const float*, float*,
                                          void*);
template void conv_backward_weight<double>(CudaQueue&, const ConvGeometry&, const double*, const double*,
                                           double*, void*);

}  // namespace ssn::kernels
