#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

#include "kernels/conv.h"
#include "runtime/error.h"

// Convolutions in cuDNN, by its graph API. A plan is what cuDNN's heuristics find best, by rules alone and
// without timing, so that all ranks find the same, among what is deterministic; it is looked for once and
// kept. The tensors are x (n, h, w, c), y and a weight (o, kh, kw, c/groups), aligned to kCudnnAlignment, all
// of f32 or of bf16; sums are f32.
namespace ssn::kernels {

constexpr std::size_t kCudnnAlignment = 16;            // bytes, of the tensors
constexpr std::size_t kCudnnWorkspaceAlignment = 256;  // bytes

struct ConvPlanKey {
  ConvGeometry g;
  ConvPass pass;
  bool half;  // bf16, else f32
  bool tf32;  // of f32: CudaQueue::tf32
  auto operator<=>(const ConvPlanKey&) const = default;
};

class ConvPlan;

/// Null where cuDNN has no way that is deterministic and as exact as asked for: then a warning says so, once.
/// Lives as long as the program. Thread-safe.
const ConvPlan* conv_plan(const ConvPlanKey& key);
std::size_t workspace_of(const ConvPlan& plan);
/// The workspace, in bytes, of the plan that cuDNN (9.8 or newer) has for another GPU, whether or not there
/// is one here; nothing where conv_plan is null there. properties: the GPU as cuDNN writes it, the JSON of
/// its CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. Throws Error where cuDNN does not take it.
std::optional<std::size_t> conv_workspace_on(std::string_view properties, const ConvPlanKey& key);
/// Writes y, x or the weight, as the plan's pass says, from the other two. Thread-safe.
void run(CudaQueue& q, Where where, const ConvPlan& plan, const void* x, const void* weight, const void* y,
         void* workspace);

}  // namespace ssn::kernels
