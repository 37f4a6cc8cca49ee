#include "kernels/conv.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "kernels/cpu/conv_im2col.h"
#include "kernels/cpu/depthwise.h"
#include "kernels/cpu/onednn.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
using dnnl::memory;
using Tag = memory::format_tag;

std::string text(const ConvGeometry& g) {
  return fmt::format(
      "x {}x{}x{}x{} (n, h, w, c), weight {}x{}x{}x{}, stride {}x{}, padding {}x{}, dilation {}x{}, "
      "groups {}",
      g.n, g.h, g.w, g.c, g.o, g.c / g.groups, g.kh, g.kw, g.stride[0], g.stride[1], g.padding[0],
      g.padding[1], g.dilation[0], g.dilation[1], g.groups);
}

/// Nothing to add up: every output is zero or has no elements.
bool is_empty(const ConvGeometry& g) {
  return g.n == 0 || g.h == 0 || g.w == 0 || g.c == 0 || g.o == 0;
}
std::int64_t x_size(const ConvGeometry& g) {
  return g.n * g.h * g.w * g.c;
}
std::int64_t y_size(const ConvGeometry& g) {
  return g.n * g.out_h() * g.out_w() * g.o;
}
std::int64_t weight_size(const ConvGeometry& g) {
  return g.o * (g.c / g.groups) * g.kh * g.kw;
}

/// A convolution in oneDNN with its weight in the layout that oneDNN prefers, and the reorder from or to
/// ours; no reorder where ours is preferred. Workspace: the reordered weight, then scratch memory for either.
struct Pass {
  dnnl::primitive conv, reorder;
  memory::desc weight, conv_scratch, reorder_scratch;
  std::size_t scratch_at = 0, bytes = 0;
};

struct ConvPlan {
  memory::desc x, y, weight;  // layouts of the contract
  Pass forward, data, gradient;

  std::size_t workspace() const { return std::max({forward.bytes, data.bytes, gradient.bytes}); }
};

struct PlanKey {
  ConvGeometry g;
  bool half;    // x and y are bf16
  int threads;  // oneDNN divides the work, and sizes its scratch memory, when a primitive is made
  auto operator<=>(const PlanKey&) const = default;
};

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Pass make_pass(const dnnl::primitive& conv, const memory::desc& scratch, const memory::desc& from,
               const memory::desc& to, const memory::desc& preferred) {
  Pass pass;
  pass.conv = conv;
  pass.conv_scratch = scratch;
  pass.weight = preferred;
  if (from != to) {
    const dnnl::reorder::primitive_desc desc(onednn::engine(), from, onednn::engine(), to, attributes());
    pass.reorder = dnnl::reorder(desc);
    pass.reorder_scratch = desc.scratchpad_desc();
    pass.scratch_at = (preferred.get_size() + 63) / 64 * 64;
  }
  pass.bytes = pass.scratch_at + std::max(scratch.get_size(), pass.reorder_scratch.get_size());
  return pass;
}

ConvPlan make_plan(const ConvGeometry& g, bool half) {
  using dnnl::algorithm, memory::data_type::f32, memory::data_type::bf16;
  const memory::data_type type = half ? bf16 : f32;
  const std::int64_t og = g.o / g.groups, cg = g.c / g.groups;
  const memory::dims weight_dims =
      g.groups == 1 ? memory::dims{g.o, g.c, g.kh, g.kw} : memory::dims{g.groups, og, cg, g.kh, g.kw};
  ConvPlan plan;
  plan.x = {{g.n, g.c, g.h, g.w}, type, Tag::nhwc};
  plan.y = {{g.n, g.o, g.out_h(), g.out_w()}, type, Tag::nhwc};
  plan.weight = {weight_dims, f32, g.groups == 1 ? Tag::oihw : Tag::goihw};
  // Plain weights with channels-last data would fall to oneDNN's reference code.
  const memory::desc any{weight_dims, type, Tag::any}, any_gradient{weight_dims, f32, Tag::any};
  const memory::dims stride{g.stride[0], g.stride[1]}, padding{g.padding[0], g.padding[1]};
  const memory::dims dilation{g.dilation[0] - 1, g.dilation[1] - 1};
  const dnnl::primitive_attr attr = attributes();

  using Forward = dnnl::convolution_forward;
  using Data = dnnl::convolution_backward_data;
  using Gradient = dnnl::convolution_backward_weights;
  const auto forward = onednn::describe<Forward>(attr, std::tie(), dnnl::prop_kind::forward_training,
                                                 algorithm::convolution_direct, plan.x, any, plan.y, stride,
                                                 dilation, padding, padding);
  const auto data = onednn::describe<Data>(attr, std::tie(forward), algorithm::convolution_direct, plan.x,
                                           any, plan.y, stride, dilation, padding, padding);
  const auto gradient =
      onednn::describe<Gradient>(attr, std::tie(forward), algorithm::convolution_direct, plan.x, any_gradient,
                                 plan.y, stride, dilation, padding, padding);
  plan.forward = make_pass(Forward(forward), forward.scratchpad_desc(), plan.weight, forward.weights_desc(),
                           forward.weights_desc());
  plan.data =
      make_pass(Data(data), data.scratchpad_desc(), plan.weight, data.weights_desc(), data.weights_desc());
  plan.gradient = make_pass(Gradient(gradient), gradient.scratchpad_desc(), gradient.diff_weights_desc(),
                            plan.weight, gradient.diff_weights_desc());
  return plan;
}

std::shared_ptr<const ConvPlan> plan_of(const ConvGeometry& g, bool half) {
  static auto& cache = *new onednn::PlanCache<PlanKey, ConvPlan>(256);
  return cache.get({g, half, num_threads()}, [&] { return make_plan(g, half); });
}

void run(const dnnl::primitive& primitive, std::unordered_map<int, memory> arguments,
         const memory::desc& scratch, void* scratch_data) {
  if (scratch.get_size() > 0) arguments.emplace(DNNL_ARG_SCRATCHPAD, onednn::over(scratch, scratch_data));
  primitive.execute(onednn::stream(), arguments);
}

/// The weight as `pass` wants it, in the workspace unless it is ours.
memory reordered(const ConvPlan& plan, const Pass& pass, const float* weight, char* workspace) {
  const memory ours = onednn::over(plan.weight, weight);
  if (!pass.reorder) return ours;
  const memory preferred = onednn::over(pass.weight, workspace);
  run(pass.reorder, {{DNNL_ARG_FROM, ours}, {DNNL_ARG_TO, preferred}}, pass.reorder_scratch,
      workspace + pass.scratch_at);
  return preferred;
}

void forward(const ConvPlan& plan, const void* x, const float* weight, void* y, char* workspace) {
  const Pass& pass = plan.forward;
  const memory w = reordered(plan, pass, weight, workspace);
  run(pass.conv,
      {{DNNL_ARG_SRC, onednn::over(plan.x, x)},
       {DNNL_ARG_WEIGHTS, w},
       {DNNL_ARG_DST, onednn::over(plan.y, y)}},
      pass.conv_scratch, workspace + pass.scratch_at);
}

void backward_data(const ConvPlan& plan, const void* gy, const float* weight, void* gx, char* workspace) {
  const Pass& pass = plan.data;
  const memory w = reordered(plan, pass, weight, workspace);
  run(pass.conv,
      {{DNNL_ARG_DIFF_DST, onednn::over(plan.y, gy)},
       {DNNL_ARG_WEIGHTS, w},
       {DNNL_ARG_DIFF_SRC, onednn::over(plan.x, gx)}},
      pass.conv_scratch, workspace + pass.scratch_at);
}

void backward_weight(const ConvPlan& plan, const void* x, const void* gy, float* gweight, char* workspace) {
  const Pass& pass = plan.gradient;
  const memory ours = onednn::over(plan.weight, gweight);
  const memory preferred = pass.reorder ? onednn::over(pass.weight, workspace) : ours;
  run(pass.conv,
      {{DNNL_ARG_SRC, onednn::over(plan.x, x)},
       {DNNL_ARG_DIFF_DST, onednn::over(plan.y, gy)},
       {DNNL_ARG_DIFF_WEIGHTS, preferred}},
      pass.conv_scratch, workspace + pass.scratch_at);
  if (pass.reorder)
    run(pass.reorder, {{DNNL_ARG_FROM, preferred}, {DNNL_ARG_TO, ours}}, pass.reorder_scratch,
        workspace + pass.scratch_at);
}

/// oneDNN 2.6 writes past its scratch memory in 1x1 convolutions with a stride whose channels fill no vector
/// (seen with AVX2), so these read a thinned x, the pixels that they use, without a stride.
bool is_thinned(const ConvGeometry& g) {
  return g.kh == 1 && g.kw == 1 && g.padding[0] == 0 && g.padding[1] == 0 &&
         (g.stride[0] > 1 || g.stride[1] > 1);
}
ConvGeometry without_stride(ConvGeometry g) {
  if (!is_thinned(g)) return g;
  g.h = g.out_h(), g.w = g.out_w();
  g.stride[0] = g.stride[1] = 1;
  return g;
}
/// Bytes of the plan's own workspace; the thinned x lies behind it.
std::size_t plan_bytes(const ConvPlan& plan) {
  return (plan.workspace() + 63) / 64 * 64;
}

/// f(pixel of x, pixel of the thinned x), for all of these; c elements each.
template <class F>
void each_kept_pixel(const ConvGeometry& g, F&& f) {
  const std::int64_t h = g.out_h(), w = g.out_w();
  parallel_for(g.n * h, std::max<std::int64_t>(1, 4096 / (w * g.c)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   for (std::int64_t j = 0; j < w; ++j)
                     f((row / h * g.h + row % h * g.stride[0]) * g.w + j * g.stride[1], row * w + j);
               });
}
template <class T>
void thin(const ConvGeometry& g, const T* x, T* thinned) {
  each_kept_pixel(
      g, [&](std::int64_t from, std::int64_t to) { std::copy_n(x + from * g.c, g.c, thinned + to * g.c); });
}
/// The gradient: zero where thin() reads nothing.
template <class T>
void spread(const ConvGeometry& g, const T* thinned, T* gx) {
  parallel_for(x_size(g), 1 << 16,
               [&](std::int64_t begin, std::int64_t end) { std::fill(gx + begin, gx + end, T(0)); });
  each_kept_pixel(
      g, [&](std::int64_t to, std::int64_t from) { std::copy_n(thinned + from * g.c, g.c, gx + to * g.c); });
}

/// f with the plan of g, without a stride if it is thinned, and the place of the thinned x, else null.
template <class T, class F>
void with_plan(Where where, const ConvGeometry& g, void* workspace, F&& f) {
  onednn::guarded(
      where, [&] { return text(g); },
      [&] {
        const std::shared_ptr<const ConvPlan> plan = plan_of(without_stride(g), std::is_same_v<T, bf16>);
        char* const own = static_cast<char*>(workspace);
        f(*plan, own, is_thinned(g) && own ? reinterpret_cast<T*>(own + plan_bytes(*plan)) : nullptr);
      });
}

}  // namespace

bool conv_takes_bf16(CpuQueue&) {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & needed) == needed;
}

template <class T>
std::size_t conv_workspace(CpuQueue&, const ConvGeometry& g) {
  if (is_empty(g)) return 0;
  if constexpr (!std::is_same_v<T, double>) {
    if (depthwise::applies(g)) return depthwise::workspace(g);
    std::size_t bytes = 0;
    with_plan<T>("conv_workspace", g, nullptr,
                 [&](const ConvPlan& plan, char*, T*) { bytes = plan_bytes(plan); });
    return bytes + (is_thinned(g) ? static_cast<std::size_t>(x_size(without_stride(g))) * sizeof(T) : 0);
  } else {
    return im2col::workspace(g);
  }
}

template <class T>
void conv_forward(CpuQueue&, const ConvGeometry& g, const T* x, const Wider<T>* weight, T* y,
                  void* workspace) {
  if (is_empty(g))
    std::fill_n(y, y_size(g), T(0));
  else if constexpr (std::is_same_v<T, double>)
    im2col::forward(g, x, weight, y, static_cast<double*>(workspace));
  else if (depthwise::applies(g))
    depthwise::forward(g, x, weight, y, workspace);
  else
    with_plan<T>("conv_forward", g, workspace, [&](const ConvPlan& plan, char* own, T* thinned) {
      if (thinned) thin(g, x, thinned);
      forward(plan, thinned ? thinned : x, weight, y, own);
    });
}

template <class T>
void conv_backward_data(CpuQueue&, const ConvGeometry& g, const T* gy, const Wider<T>* weight, T* gx,
                        void* workspace) {
  if (is_empty(g))
    std::fill_n(gx, x_size(g), T(0));
  else if constexpr (std::is_same_v<T, double>)
    im2col::backward_data(g, gy, weight, gx, static_cast<double*>(workspace));
  else if (depthwise::applies(g))
    depthwise::backward_data(g, gy, weight, gx, workspace);
  else
    with_plan<T>("conv_backward_data", g, workspace, [&](const ConvPlan& plan, char* own, T* thinned) {
      backward_data(plan, gy, weight, thinned ? thinned : gx, own);
      if (thinned) spread(g, thinned, gx);
    });
}

template <class T>
void conv_backward_weight(CpuQueue&, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                          void* workspace) {
  if (is_empty(g))
    std::fill_n(gweight, weight_size(g), Wider<T>{0});
  else if constexpr (std::is_same_v<T, double>)
    im2col::backward_weight(g, x, gy, gweight, static_cast<double*>(workspace));
  else if (depthwise::applies(g))
    depthwise::backward_weight(g, x, gy, gweight, workspace);
  else
    with_plan<T>("conv_backward_weight", g, workspace, [&](const ConvPlan& plan, char* own, T* thinned) {
      if (thinned) thin(g, x, thinned);
      backward_weight(plan, thinned ? thinned : x, gy, gweight, own);
    });
}

template std::size_t conv_workspace<bf16>(CpuQueue&, const ConvGeometry&);
template void conv_forward<bf16>(CpuQueue&, const ConvGeometry&, const bf16*, const float*, bf16*, void*);
template void conv_backward_data<bf16>(CpuQueue&, const ConvGeometry&, const bf16*, const float*, bf16*,
                                       void*);
template void conv_backward_weight<bf16>(CpuQueue&, const ConvGeometry&, const bf16*, const bf16*, float*,
                                         void*);
template std::size_t conv_workspace<float>(CpuQueue&, const ConvGeometry&);
template std::size_t conv_workspace<double>(CpuQueue&, const ConvGeometry&);
template void conv_forward<float>(CpuQueue&, const ConvGeometry&, const float*, const float*, float*, void*);
template void conv_forward<double>(CpuQueue&, const ConvGeometry&, const double*, const double*, double*,
                                   void*);
template void conv_backward_data<float>(CpuQueue&, const ConvGeometry&, const float*, const float*, float*,
                                        void*);
template void conv_backward_data<double>(CpuQueue&, const ConvGeometry&, const double*, const double*,
                                         double*, void*);
template void conv_backward_weight<float>(CpuQueue&, const ConvGeometry&, const float*, const float*, float*,
                                          void*);
template void conv_backward_weight<double>(CpuQueue&, const ConvGeometry&, const double*, const double*,
                                           double*, void*);

}  // namespace ssn::kernels
