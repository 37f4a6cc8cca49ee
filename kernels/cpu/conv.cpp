#include "kernels/conv.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "kernels/cpu/conv_im2col.h"
#include "kernels/cpu/depthwise.h"
#include "kernels/cpu/onednn.h"
#include "runtime/parallel.h"

namespace ssn::kernels {

std::string ConvGeometry::text() const {
  return fmt::format(
      "x {}x{}x{}x{} (n, h, w, c), weight {}x{}x{}x{}, stride {}x{}, padding {}x{}, dilation {}x{}, "
      "groups {}",
      n, h, w, c, o, c / groups, kh, kw, stride[0], stride[1], padding[0], padding[1], dilation[0],
      dilation[1], groups);
}

namespace {
using dnnl::memory;
using Tag = memory::format_tag;

/// An argument of a convolution: its layout in the contract, and the one that the primitive works on. Where
/// they differ, a copy in the workspace is reordered from or to the caller's data.
struct Argument {
  int id;  // DNNL_ARG_*
  memory::desc ours, preferred;
  dnnl::primitive reorder = {};
  memory::desc scratch = {};  // of the reorder
  std::size_t at = 0;         // of the copy in the workspace
};

/// A convolution in oneDNN. Workspace: the reordered copies, then scratch memory for one primitive at a time.
struct Pass {
  dnnl::primitive conv;
  memory::desc scratch;
  Argument a, b, out;
  std::size_t scratch_at = 0, bytes = 0;
};

struct ConvPlan {
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

Pass make_pass(const dnnl::primitive& conv, const memory::desc& scratch, const Argument& a, const Argument& b,
               const Argument& out) {
  Pass pass{conv, scratch, a, b, out};
  std::size_t scratch_bytes = scratch.get_size();
  for (Argument* x : {&pass.a, &pass.b, &pass.out}) {
    if (x->ours == x->preferred) continue;
    const bool written = x == &pass.out;
    const dnnl::reorder::primitive_desc desc(onednn::engine(), written ? x->preferred : x->ours,
                                             onednn::engine(), written ? x->ours : x->preferred,
                                             attributes());
    x->reorder = dnnl::reorder(desc);
    x->scratch = desc.scratchpad_desc();
    x->at = pass.scratch_at;
    pass.scratch_at += (x->preferred.get_size() + 63) / 64 * 64;
    scratch_bytes = std::max(scratch_bytes, x->scratch.get_size());
  }
  pass.bytes = pass.scratch_at + scratch_bytes;
  return pass;
}

/// Whether Winograd's F(4x4, 3x3) is faster than the direct way, by a third of its time at least: 36 products
/// a tile of 16 pixels instead of 144, but every tile of x and y is transformed (a pixel counts as 1400
/// products), and so is the weight (an element: 2400). The two figures fit times of 21 geometries with
/// AVX-512. Results differ from the direct way's by about 1e-6 of their size (root mean square, f32).
bool winograd_pays(const ConvGeometry& g) {
  const bool shape = g.kh == 3 && g.kw == 3 && g.groups == 1 && g.stride[0] == 1 && g.stride[1] == 1 &&
                     g.padding[0] == 1 && g.padding[1] == 1 && g.dilation[0] == 1 && g.dilation[1] == 1;
  if (!shape || g.c % 16 != 0 || g.o % 16 != 0) return false;
  const auto tiles = static_cast<double>(g.n * ((g.h + 3) / 4) * ((g.w + 3) / 4));
  const auto c = static_cast<double>(g.c), o = static_cast<double>(g.o);
  const double winograd = 36 * tiles + 1400 * tiles * (1 / c + 1 / o) + 2400;
  return winograd < 0.75 * 9 * static_cast<double>(g.n * g.h * g.w);
}

/// Throws dnnl::error where oneDNN has not got the algorithm on this processor.
ConvPlan make_plan(const ConvGeometry& g, memory::data_type type, dnnl::algorithm algorithm) {
  const std::int64_t og = g.o / g.groups, cg = g.c / g.groups;
  const memory::dims weight_dims =
      g.groups == 1 ? memory::dims{g.o, g.c, g.kh, g.kw} : memory::dims{g.groups, og, cg, g.kh, g.kw};
  const memory::dims x_dims{g.n, g.c, g.h, g.w}, y_dims{g.n, g.o, g.out_h(), g.out_w()};
  const memory::desc x(x_dims, type, Tag::nhwc), y(y_dims, type, Tag::nhwc);
  const memory::desc weight(weight_dims, memory::data_type::f32, g.groups == 1 ? Tag::oihw : Tag::goihw);
  const Tag inside = algorithm == dnnl::algorithm::convolution_winograd ? Tag::nChw16c : Tag::nhwc;
  const memory::desc x_inside(x_dims, type, inside), y_inside(y_dims, type, inside);
  // Plain weights with channels-last data would fall to oneDNN's reference code.
  const memory::desc any{weight_dims, type, Tag::any},
      any_gradient{weight_dims, memory::data_type::f32, Tag::any};
  const memory::dims stride{g.stride[0], g.stride[1]}, padding{g.padding[0], g.padding[1]};
  const memory::dims dilation{g.dilation[0] - 1, g.dilation[1] - 1};
  const dnnl::primitive_attr attr = attributes();

  using Forward = dnnl::convolution_forward;
  using Data = dnnl::convolution_backward_data;
  using Gradient = dnnl::convolution_backward_weights;
  const auto forward =
      onednn::describe<Forward>(attr, std::tie(), dnnl::prop_kind::forward_training, algorithm, x_inside, any,
                                y_inside, stride, dilation, padding, padding);
  const auto data = onednn::describe<Data>(attr, std::tie(forward), algorithm, x_inside, any, y_inside,
                                           stride, dilation, padding, padding);
  const auto gradient = onednn::describe<Gradient>(attr, std::tie(forward), algorithm, x_inside, any_gradient,
                                                   y_inside, stride, dilation, padding, padding);
  return {
      .forward = make_pass(Forward(forward), forward.scratchpad_desc(), {DNNL_ARG_SRC, x, x_inside},
                           {DNNL_ARG_WEIGHTS, weight, forward.weights_desc()}, {DNNL_ARG_DST, y, y_inside}),
      .data = make_pass(Data(data), data.scratchpad_desc(), {DNNL_ARG_DIFF_DST, y, y_inside},
                        {DNNL_ARG_WEIGHTS, weight, data.weights_desc()}, {DNNL_ARG_DIFF_SRC, x, x_inside}),
      .gradient = make_pass(Gradient(gradient), gradient.scratchpad_desc(), {DNNL_ARG_SRC, x, x_inside},
                            {DNNL_ARG_DIFF_DST, y, y_inside},
                            {DNNL_ARG_DIFF_WEIGHTS, weight, gradient.diff_weights_desc()})};
}

/// SSN_WINOGRAD=off: for comparisons of results and speed.
bool winograd_allowed() {
  static const bool allowed = [] {
    const char* value = std::getenv("SSN_WINOGRAD");
    return !value || std::string_view(value) != "off";
  }();
  return allowed;
}

ConvPlan make_plan(const ConvGeometry& g, bool half) {
  const memory::data_type type = half ? memory::data_type::bf16 : memory::data_type::f32;
  if (!half && winograd_pays(g) && winograd_allowed()) {
    try {
      return make_plan(g, type, dnnl::algorithm::convolution_winograd);
    } catch (const dnnl::error& e) {
      if (e.status != dnnl_unimplemented) throw;
    }
  }
  return make_plan(g, type, dnnl::algorithm::convolution_direct);
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

/// out = the convolution's pass of a and b.
void run(const Pass& pass, const void* a, const void* b, const void* out, char* workspace) {
  void* const scratch = workspace + pass.scratch_at;
  const auto copy = [&](const Argument& x) { return onednn::over(x.preferred, workspace + x.at); };
  const auto reorder = [&](const Argument& x, const memory& from, const memory& to) {
    run(x.reorder, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, x.scratch, scratch);
  };
  const auto input = [&](const Argument& x, const void* data) {
    const memory ours = onednn::over(x.ours, data);
    if (!x.reorder) return ours;
    reorder(x, ours, copy(x));
    return copy(x);
  };
  const memory first = input(pass.a, a), second = input(pass.b, b), ours = onednn::over(pass.out.ours, out);
  const memory result = pass.out.reorder ? copy(pass.out) : ours;
  run(pass.conv, {{pass.a.id, first}, {pass.b.id, second}, {pass.out.id, result}}, pass.scratch, scratch);
  if (pass.out.reorder) reorder(pass.out, result, ours);
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
  parallel_for(g.x_size(), 1 << 16,
               [&](std::int64_t begin, std::int64_t end) { std::fill(gx + begin, gx + end, T(0)); });
  each_kept_pixel(
      g, [&](std::int64_t to, std::int64_t from) { std::copy_n(thinned + from * g.c, g.c, gx + to * g.c); });
}

/// f with the plan of g, without a stride if it is thinned, and the place of the thinned x, else null.
template <class T, class F>
void with_plan(Where where, const ConvGeometry& g, void* workspace, F&& f) {
  onednn::guarded(
      where, [&] { return g.text(); },
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
WeightFormat conv_weight_format(CpuQueue&, const ConvGeometry&) {
  return {};
}

template <class T>
std::size_t conv_workspace(CpuQueue&, const ConvGeometry& g, ConvPass) {
  if (g.is_empty()) return 0;
  if constexpr (!std::is_same_v<T, double>) {
    if (g.is_depthwise()) return depthwise::workspace(g);
    std::size_t bytes = 0;
    with_plan<T>("conv_workspace", g, nullptr,
                 [&](const ConvPlan& plan, char*, T*) { bytes = plan_bytes(plan); });
    return bytes + (is_thinned(g) ? static_cast<std::size_t>(without_stride(g).x_size()) * sizeof(T) : 0);
  } else {
    return im2col::workspace(g);
  }
}

template <class T>
void conv_forward(CpuQueue&, const ConvGeometry& g, const T* x, const void* any_weight, T* y,
                  void* workspace) {
  const auto* const weight = static_cast<const Wider<T>*>(any_weight);
  if (g.is_empty())
    std::fill_n(y, g.y_size(), T(0));
  else if constexpr (std::is_same_v<T, double>)
    im2col::forward(g, x, weight, y, static_cast<double*>(workspace));
  else if (g.is_depthwise())
    depthwise::forward(g, x, weight, y, workspace);
  else
    with_plan<T>("conv_forward", g, workspace, [&](const ConvPlan& plan, char* own, T* thinned) {
      if (thinned) thin(g, x, thinned);
      run(plan.forward, thinned ? thinned : x, weight, y, own);
    });
}

template <class T>
void conv_backward_data(CpuQueue&, const ConvGeometry& g, const T* gy, const void* any_weight, T* gx,
                        void* workspace) {
  const auto* const weight = static_cast<const Wider<T>*>(any_weight);
  if (g.is_empty())
    std::fill_n(gx, g.x_size(), T(0));
  else if constexpr (std::is_same_v<T, double>)
    im2col::backward_data(g, gy, weight, gx, static_cast<double*>(workspace));
  else if (g.is_depthwise())
    depthwise::backward_data(g, gy, weight, gx, workspace);
  else
    with_plan<T>("conv_backward_data", g, workspace, [&](const ConvPlan& plan, char* own, T* thinned) {
      run(plan.data, gy, weight, thinned ? thinned : gx, own);
      if (thinned) spread(g, thinned, gx);
    });
}

template <class T>
void conv_backward_weight(CpuQueue&, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                          void* workspace) {
  if (g.is_empty())
    std::fill_n(gweight, g.weight_size(), Wider<T>{0});
  else if constexpr (std::is_same_v<T, double>)
    im2col::backward_weight(g, x, gy, gweight, static_cast<double*>(workspace));
  else if (g.is_depthwise())
    depthwise::backward_weight(g, x, gy, gweight, workspace);
  else
    with_plan<T>("conv_backward_weight", g, workspace, [&](const ConvPlan& plan, char* own, T* thinned) {
      if (thinned) thin(g, x, thinned);
      run(plan.gradient, thinned ? thinned : x, gy, gweight, own);
    });
}

template WeightFormat conv_weight_format<bf16>(CpuQueue&, const ConvGeometry&);
template WeightFormat conv_weight_format<float>(CpuQueue&, const ConvGeometry&);
template WeightFormat conv_weight_format<double>(CpuQueue&, const ConvGeometry&);
template std::size_t conv_workspace<bf16>(CpuQueue&, const ConvGeometry&, ConvPass);
template void conv_forward<bf16>(CpuQueue&, const ConvGeometry&, const bf16*, const void*, bf16*, void*);
template void conv_backward_data<bf16>(CpuQueue&, const ConvGeometry&, const bf16*, const void*, bf16*,
                                       void*);
template void conv_backward_weight<bf16>(CpuQueue&, const ConvGeometry&, const bf16*, const bf16*, float*,
                                         void*);
template std::size_t conv_workspace<float>(CpuQueue&, const ConvGeometry&, ConvPass);
template std::size_t conv_workspace<double>(CpuQueue&, const ConvGeometry&, ConvPass);
template void conv_forward<float>(CpuQueue&, const ConvGeometry&, const float*, const void*, float*, void*);
template void conv_forward<double>(CpuQueue&, const ConvGeometry&, const double*, const void*, double*,
                                   void*);
template void conv_backward_data<float>(CpuQueue&, const ConvGeometry&, const float*, const void*, float*,
                                        void*);
template void conv_backward_data<double>(CpuQueue&, const ConvGeometry&, const double*, const void*, double*,
                                         void*);
template void conv_backward_weight<float>(CpuQueue&, const ConvGeometry&, const float*, const float*, float*,
                                          void*);
template void conv_backward_weight<double>(CpuQueue&, const ConvGeometry&, const double*, const double*,
                                           double*, void*);

}  // namespace ssn::kernels
