#include "kernels/matmul.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/elementwise.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
constexpr std::int64_t kTile = 64;  // a tile of b, 32 KiB, stays in the first-level cache

/// Rows [first, last) of c.
void gemm_rows(const GemmShape& s, const double* a, const double* b, double* c, std::int64_t first,
               std::int64_t last) {
  const std::int64_t a_row = s.transpose_a ? 1 : s.lda, a_col = s.transpose_a ? s.lda : 1;
  const std::int64_t b_row = s.transpose_b ? 1 : s.ldb, b_col = s.transpose_b ? s.ldb : 1;
  alignas(64) double tile[kTile][kTile];
  for (std::int64_t j0 = 0; j0 < s.n; j0 += kTile) {
    const std::int64_t width = std::min(kTile, s.n - j0);
    for (std::int64_t k0 = 0; k0 < s.k; k0 += kTile) {
      const std::int64_t depth = std::min(kTile, s.k - k0);
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t j = 0; j < width; ++j) tile[k][j] = b[(k0 + k) * b_row + (j0 + j) * b_col];
      for (std::int64_t i = first; i < last; ++i) {
        double* out = c + i * s.ldc + j0;
        for (std::int64_t k = 0; k < depth; ++k) {
          const double factor = a[i * a_row + (k0 + k) * a_col];
#pragma omp simd
          for (std::int64_t j = 0; j < width; ++j) out[j] += factor * tile[k][j];
        }
      }
    }
  }
}

void fill_zero(const GemmShape& s, auto* c, std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first; i < last; ++i) std::fill_n(c + i * s.ldc, s.n, 0);
}
}  // namespace

template <>
void gemm(const GemmShape& s, const double* a, const double* b, double* c, bool add) {
  const std::int64_t grain = 1 + 32768 / (1 + s.n * s.k);  // rows that are worth a thread
  parallel_for(s.m, grain, [&](std::int64_t first, std::int64_t last) {
    if (!add) fill_zero(s, c, first, last);
    gemm_rows(s, a, b, c, first, last);
  });
}

template <>
void gemm(const GemmShape& s, const float* a, const float* b, float* c, bool add) {
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    if (!add) fill_zero(s, c, 0, s.m);
    return;
  }
  const dnnl::status status = dnnl::sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k,
                                          1.0f, a, s.lda, b, s.ldb, add ? 1.0f : 0.0f, c, s.ldc);
  check(status == dnnl::status::success, "matmul", "oneDNN: {}, for m {}, n {}, k {}",
        dnnl_status2str(static_cast<dnnl_status_t>(status)), s.m, s.n, s.k);
}

namespace {
using dnnl::memory;

/// A product in oneDNN of row-major operands: its own layouts of b would be faster by less than it takes to
/// bring b, a weight that changes in every step, into them.
struct MatmulPlan {
  memory::desc a, b, bias, c, scratch;
  dnnl::primitive primitive;
};

struct MatmulKey {
  MatmulShape s;
  bool wide, bias, add;  // wide: c is f32
  int threads;           // oneDNN divides the work, and sizes its scratch memory, when a primitive is made
  auto operator<=>(const MatmulKey&) const = default;
};

MatmulPlan make_plan(const MatmulKey& key) {
  using Tag = memory::format_tag;
  using Type = memory::data_type;
  const MatmulShape& s = key.s;
  MatmulPlan plan;
  plan.a = {{s.m, s.k}, Type::bf16, s.transpose_a ? Tag::ba : Tag::ab};
  plan.b = {{s.k, s.n}, Type::bf16, s.transpose_b ? Tag::ba : Tag::ab};
  plan.c = {{s.m, s.n}, key.wide ? Type::f32 : Type::bf16, Tag::ab};
  if (key.bias) plan.bias = {{1, s.n}, Type::f32, Tag::ab};
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.add) {
    dnnl::post_ops sum;
    sum.append_sum();
    attr.set_post_ops(sum);
  }
  const auto desc = onednn::describe<dnnl::matmul>(attr, std::tie(), plan.a, plan.b, plan.bias, plan.c);
  plan.scratch = desc.scratchpad_desc();
  plan.primitive = dnnl::matmul(desc);
  return plan;
}

/// f(plan); errors name the product.
template <class C, class F>
void with_plan(const MatmulShape& s, bool bias, bool add, F&& f) {
  static auto& cache = *new onednn::PlanCache<MatmulKey, MatmulPlan>(256);
  onednn::guarded(
      "matmul", [&] { return fmt::format("m {}, n {}, k {} in bf16", s.m, s.n, s.k); },
      [&] {
        const MatmulKey key{s, std::is_same_v<C, float>, bias, add, num_threads()};
        f(*cache.get(key, [&] { return make_plan(key); }));
      });
}

/// Of bf16 operands.
template <class C>
void half_matmul(const Matmul<bf16, C>& p, void* workspace) {
  with_plan<C>(p.s, p.bias != nullptr, p.add, [&](const MatmulPlan& plan) {
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, onednn::over(plan.a, p.a)},
                                              {DNNL_ARG_WEIGHTS, onednn::over(plan.b, p.b)},
                                              {DNNL_ARG_DST, onednn::over(plan.c, p.c)},
                                              {DNNL_ARG_SCRATCHPAD, onednn::over(plan.scratch, workspace)}};
    if (p.bias) arguments.emplace(DNNL_ARG_BIAS, onednn::over(plan.bias, p.bias));
    plan.primitive.execute(onednn::stream(), arguments);
  });
}
}  // namespace

template <class T, class C>
std::size_t matmul_workspace(CpuQueue&, const Matmul<T, C>& p) {
  std::size_t bytes = 0;
  if constexpr (std::is_same_v<T, bf16>)
    with_plan<C>(p.s, p.bias != nullptr, p.add,
                 [&](const MatmulPlan& plan) { bytes = plan.scratch.get_size(); });
  return bytes;
}

template <class T, class C>
void matmul(CpuQueue& q, const Matmul<T, C>& p, void* workspace) {
  if constexpr (std::is_same_v<T, bf16>) {
    half_matmul(p, workspace);
  } else {
    const MatmulShape& s = p.s;
    gemm({s.transpose_a, s.transpose_b, s.m, s.n, s.k, s.transpose_a ? s.m : s.k, s.transpose_b ? s.k : s.n,
          s.n},
         p.a, p.b, p.c, p.add);
    if (p.bias) bias_forward<T>(q, s.m, s.n, p.c, p.bias, p.c);
  }
}

template void matmul(CpuQueue&, const Matmul<float>&, void*);
template void matmul(CpuQueue&, const Matmul<double>&, void*);
template void matmul(CpuQueue&, const Matmul<bf16>&, void*);
template void matmul(CpuQueue&, const Matmul<bf16, float>&, void*);
template std::size_t matmul_workspace(CpuQueue&, const Matmul<float>&);
template std::size_t matmul_workspace(CpuQueue&, const Matmul<double>&);
template std::size_t matmul_workspace(CpuQueue&, const Matmul<bf16>&);
template std::size_t matmul_workspace(CpuQueue&, const Matmul<bf16, float>&);

}  // namespace ssn::kernels
