#include "kernels/matmul.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "kernels/elementwise.h"
#include "runtime/cuda/cublas_check.h"
#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr const char* kWhere = "matmul";
constexpr std::size_t kMaxWorkspace = 32 << 20;  // bytes; what cuBLAS itself takes on Hopper
constexpr std::uint32_t kAlignment = 16;         // bytes; more serves no kernel
constexpr std::size_t kBiasAlignment = 256;      // of its copy in the workspace

template <class T>
constexpr cudaDataType_t type_of() {
  if (std::is_same_v<T, double>) return CUDA_R_64F;
  return std::is_same_v<T, bf16> ? CUDA_R_16BF : CUDA_R_32F;
}

std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return std::min(kAlignment, static_cast<std::uint32_t>(address & -address));
}

/// cuBLASLt of the queue's device. It lives as long as the program: at the end the driver may be gone.
cublasLtHandle_t handle() {
  static const cublasLtHandle_t made = [] {
    cublasLtHandle_t h = nullptr;
    cublas_check(cublasLtCreate(&h), "start cuBLASLt");
    return h;
  }();
  return made;
}

template <auto destroy>
struct Destroy {
  void operator()(auto* descriptor) const { destroy(descriptor); }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;

/// What the choice of an algorithm depends on.
struct Key {
  MatmulShape s;
  cudaDataType_t operands, result;
  bool bias, tf32;
  std::uint32_t align_a, align_b, align_c;
  auto operator<=>(const Key&) const = default;
};
template <class T, class C>
Key key_of(const CudaQueue& q, const Matmul<T, C>& p) {
  return {p.s,
          type_of<T>(),
          type_of<C>(),
          p.bias != nullptr,
          std::is_same_v<T, float> && q.tf32,
          alignment_of(p.a),
          alignment_of(p.b),
          alignment_of(p.c)};
}

/// cuBLASLt is column-major: it sees every matrix transposed, and computes the transposed c = op(b) op(a).
struct Description {
  Operation operation;
  Layout b, a, c;
};

/// `bias` has C's type and kAlignment, and may be null.
Description describe(const Key& key, const void* bias) {
  const auto layout = [](cudaDataType_t type, bool transposed, std::int64_t rows, std::int64_t columns) {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t made = nullptr;
    cublas_check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(columns),
                                            static_cast<std::uint64_t>(rows), columns),
                 kWhere);
    return Layout(made);
  };
  const bool f64 = key.operands == CUDA_R_64F;
  cublasLtMatmulDesc_t operation = nullptr;
  cublas_check(cublasLtMatmulDescCreate(&operation,
                                        f64        ? CUBLAS_COMPUTE_64F
                                        : key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                   : CUBLAS_COMPUTE_32F,
                                        f64 ? CUDA_R_64F : CUDA_R_32F),
               kWhere);
  const MatmulShape& s = key.s;
  Description d{Operation(operation), layout(key.operands, s.transpose_b, s.k, s.n),
                layout(key.operands, s.transpose_a, s.m, s.k), layout(key.result, false, s.m, s.n)};
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    cublas_check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), kWhere);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (bias) {  // GELU follows in a kernel of its own: the library has its approximation by tanh only
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return d;
}

struct Plan {
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;  // bytes, a multiple of kBiasAlignment
};

Plan make_plan(const Key& key) {
  // Only the alignment of a bias is looked at.
  const Description d =
      describe(key, key.bias ? reinterpret_cast<const void*>(std::uintptr_t{kAlignment}) : nullptr);
  cublasLtMatmulPreference_t made = nullptr;
  cublas_check(cublasLtMatmulPreferenceCreate(&made), kWhere);
  const Preference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    cublas_check(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value), kWhere);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
  // Partial sums stay in the type of the computation: c is rounded once. Their order is fixed.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle(), d.operation.get(), d.b.get(), d.a.get(), d.c.get(), d.c.get(), made, 1, &best, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) cublas_check(status, kWhere);
  const MatmulShape& s = key.s;
  check(found > 0, kWhere,
        "cuBLASLt {} has no algorithm for {} by {} by {} of CUDA types {} and {}: update it",
        cublasLtGetVersion(), s.m, s.k, s.n, static_cast<int>(key.operands), static_cast<int>(key.result));
  cublas_check(best.state, kWhere);
  return {best.algo, (best.workspaceSize + kBiasAlignment - 1) / kBiasAlignment * kBiasAlignment};
}

/// Asked for once: the choice takes longer than most products.
const Plan& plan_of(const Key& key) {
  static auto& mutex = *new std::mutex;
  static auto& plans = *new std::map<Key, Plan>;
  const std::lock_guard lock(mutex);
  const auto found = plans.find(key);
  return found != plans.end() ? found->second : plans.emplace(key, make_plan(key)).first->second;
}

/// Whether the epilogue can read the bias where it is: it has to be of C's type, and aligned.
template <class T, class C>
bool bias_fits(const Matmul<T, C>& p) {
  return std::is_same_v<C, Wider<C>> && alignment_of(p.bias) == kAlignment;
}

/// The bias as the epilogue takes it, copied to `place` if need be.
template <class T, class C>
const void* ready_bias(CudaQueue& q, const Matmul<T, C>& p, void* place) {
  if (!p.bias || bias_fits(p)) return p.bias;
  if constexpr (std::is_same_v<C, Wider<C>>)
    cuda_check(cudaMemcpyAsync(place, p.bias, static_cast<std::size_t>(p.s.n) * sizeof(C),
                               cudaMemcpyDeviceToDevice, q.stream),
               kWhere);
  else
    convert(q, p.s.n, p.bias, static_cast<C*>(place));
  return place;
}

}  // namespace

template <class T, class C>
std::size_t matmul_workspace(CudaQueue& q, const Matmul<T, C>& p) {
  const std::size_t own = plan_of(key_of(q, p)).workspace;
  return p.bias && !bias_fits(p) ? own + static_cast<std::size_t>(p.s.n) * sizeof(C) : own;
}

template <class T, class C>
void matmul(CudaQueue& q, const Matmul<T, C>& p, void* workspace) {
  const Key key = key_of(q, p);
  const Plan& plan = plan_of(key);
  const Description d = describe(key, ready_bias(q, p, static_cast<char*>(workspace) + plan.workspace));
  const Wider<C> one = 1, kept = p.add ? 1 : 0;
  cublas_check(
      cublasLtMatmul(handle(), d.operation.get(), &one, p.b, d.b.get(), p.a, d.a.get(), &kept, p.c, d.c.get(),
                     p.c, d.c.get(), &plan.algorithm, workspace, plan.workspace, q.stream),
      kWhere);
  if (launches_wait()) cuda_check(cudaStreamSynchronize(q.stream), kWhere);
}

template void matmul(CudaQueue&, const Matmul<float>&, void*);
template void matmul(CudaQueue&, const Matmul<double>&, void*);
template void matmul(CudaQueue&, const Matmul<bf16>&, void*);
template void matmul(CudaQueue&, const Matmul<bf16, float>&, void*);
template std::size_t matmul_workspace(CudaQueue&, const Matmul<float>&);
template std::size_t matmul_workspace(CudaQueue&, const Matmul<double>&);
template std::size_t matmul_workspace(CudaQueue&, const Matmul<bf16>&);
template std::size_t matmul_workspace(CudaQueue&, const Matmul<bf16, float>&);

}  // namespace ssn::kernels
