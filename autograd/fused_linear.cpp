#include "autograd/fused_linear.h"

#include "kernels/generated_linear.h"

namespace ssn {
namespace {

/// Where the fused way is faster.
struct Limits {
  std::int64_t rows;      // at most, of x
  std::int64_t elements;  // at least, of the weight
};

/// On processors as measured (perf/results/linear.md): smaller weights are read back from the caches, and
/// with more rows the fused product's loop takes more than it saves. On GPUs not measured, but from what must
/// be moved and computed: both ways read theta, the fused one anew for each 64 rows in bf16; it saves writing
/// an element of the weight and reading it, 8 bytes in f32, which at 4.8 TB/s take as long as the 2 · rows
/// FLOPs of 25 rows at 30 TFLOP/s, half of what Hopper's f32 units can do.
Limits limits_of(DType activations, Device device) {
  const bool half = activations == DType::bf16;
  if (device == Device::cpu) return {half ? 0 : 24, 1 << 20};  // bf16: libraries multiply in bf16 there
  return {half ? 64 : 24, 0};
}

}  // namespace

bool fuses_linear(const WeightRule& rule, std::int64_t rows, DType activations, Device device) {
  const bool as_it_is = rule.method == WeightRule::Method::exact && rule.gain == 1;  // is read where it lies
  const Limits most = limits_of(activations, device);
  return !as_it_is && !rule.resize && std::ssize(rule.offsets) <= kernels::kFusedTemplates &&
         rows <= most.rows && rule.shape.size() >= most.elements && rule.shape.size() < std::int64_t{1} << 32;
}

}  // namespace ssn
