// The double of cuDNN's graph API: descriptors and their attributes, plans, and what runs them.
#include "cudnn.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "tests/cuda_on_host/cudnn_engines.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/runtime_error.h"
#include "tests/cuda_on_host/streams.h"

struct cudnnContext {
  int device;
  cudaStream_t stream = nullptr;
};

namespace cuda_on_host {
namespace {

thread_local std::string t_text;  // of the last refusal
template <class... A>
cudnnStatus_t refuse(cudnnStatus_t code, fmt::format_string<A...> format, A&&... args) {
  t_text = fmt::format(format, std::forward<A>(args)...);
  return code;
}

struct Descriptor;
using Shared = std::shared_ptr<Descriptor>;
struct Attribute {
  std::vector<std::byte> bytes;
  Shared refers;  // of a descriptor
};
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes = {};
  std::optional<Convolution> convolution = {};  // of operations, and all that refer to one
  std::vector<Engine> engines = {};             // of heuristics, and of what comes from them: one
  Shared graph = {};                            // of what comes from heuristics

  template <class V>
  std::vector<V> get(cudnnBackendAttributeName_t name) const {
    const auto& bytes = attributes.at(name).bytes;
    std::vector<V> values(bytes.size() / sizeof(V));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class V>
  V one(cudnnBackendAttributeName_t name) const {
    return get<V>(name).at(0);
  }
  const Shared& other(cudnnBackendAttributeName_t name) const { return attributes.at(name).refers; }
};

struct Library {  // never destroyed: static objects may use it late
  std::recursive_mutex mutex;
  std::set<cudnnHandle_t> handles;
  std::map<void*, Shared> descriptors;
};
Library& library() {
  static Library& l = *new Library;
  return l;
}
Shared find(void* descriptor) {
  const auto it = library().descriptors.find(descriptor);
  return it == library().descriptors.end() ? nullptr : it->second;
}
cudnnStatus_t check_handle(cudnnHandle_t handle) {
  if (!library().handles.contains(handle)) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "no such handle");
  if (handle->device == current_device()) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_BAD_PARAM, "the handle is of device {}, the current one is {}", handle->device,
                current_device());
}

/// A handle and plans may live as long as the program, with the configurations that these refer to; but not
/// two plans for the same: each is to be kept and used again.
void look_for_leaks() {
  std::set<std::pair<Convolution, Engine>> plans;
  std::set<const Descriptor*> kept;
  int again = 0;
  for (const auto& [unused, d] : library().descriptors) {
    if (d->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !d->finalized) continue;
    kept.insert(d.get());
    kept.insert(d->other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).get());
    if (!plans.emplace(*d->convolution, d->engines.at(0)).second) ++again;
  }
  std::size_t left = 0;
  for (const auto& [unused, d] : library().descriptors) left += kept.contains(d.get()) ? 0 : 1;
  std::map<int, int> handles;
  for (const cudnnHandle_t h : library().handles)
    if (++handles[h->device] > 1) ++again;
  if (left == 0 && again == 0) return;
  std::fprintf(
      stderr,
      "cuda_on_host: %zu cuDNN descriptors were not destroyed, and %d plans or handles were made again\n",
      left, again);
  std::_Exit(1);
}

/// What can be set.
struct Rule {
  cudnnBackendDescriptorType_t owner;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  std::int64_t most = 1;  // elements
  cudnnBackendDescriptorType_t refers = {};
};
constexpr auto kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
constexpr auto kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
constexpr auto kHeuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
constexpr auto kConfig = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
constexpr auto kEngine = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
constexpr auto kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
constexpr auto kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr auto kOther = CUDNN_TYPE_BACKEND_DESCRIPTOR;
constexpr Rule kRules[] = {
    {kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
    {kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
    {kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
    {kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8},
    {kTensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 8},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 8},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 8},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 8},
    {kConvolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 8},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kOther, 1, kTensor},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kOther, 1, kTensor},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kOther, 1, kTensor},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kOther, 1, kConvolution},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kOther, 1, kTensor},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kOther, 1, kTensor},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kOther, 1, kTensor},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kOther, 1, kConvolution},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kOther, 1, kTensor},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kOther, 1, kTensor},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kOther, 1, kTensor},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kOther, 1, kConvolution},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT},
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kOther},  // an operation of any kind
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kOther, 1, kGraph},
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kOther, 1, kConfig},
    {kPack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 64},
    {kPack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 64},
    {kPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR},
};

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_DATA_TYPE: return sizeof(cudnnDataType_t);
    case CUDNN_TYPE_CONVOLUTION_MODE: return sizeof(cudnnConvolutionMode_t);
    case CUDNN_TYPE_HEUR_MODE: return sizeof(cudnnBackendHeurMode_t);
    case CUDNN_TYPE_FLOAT: return sizeof(float);
    default: return 8;
  }
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  return type == kForward || type == kData || type == kFilter;
}

/// The descriptor that an attribute refers to.
cudnnStatus_t check_reference(const Rule& rule, void* descriptor, Shared& found) {
  found = find(descriptor);
  if (!found) return refuse(CUDNN_STATUS_BAD_PARAM, "attribute {} refers to no descriptor", int{rule.name});
  if (rule.name == CUDNN_ATTR_OPERATIONGRAPH_OPS ? !is_operation(found->type) : found->type != rule.refers)
    return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "attribute {} refers to a descriptor of type {}",
                  int{rule.name}, int{found->type});
  if (found->finalized) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute {} refers to what is not finalized",
                int{rule.name});
}

cudnnStatus_t finalize_tensor(const Descriptor& d) {
  const auto dims = d.get<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = d.get<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  const auto alignment = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  const auto type = d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "type {} is not known here", int{type});
  if (dims.size() != 4 || strides.size() != 4)
    return refuse(CUDNN_STATUS_BAD_PARAM, "{} dimensions and {} strides: expected 4", dims.size(),
                  strides.size());
  if (std::any_of(dims.begin(), dims.end(), [](std::int64_t n) { return n < 1; }))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a dimension of zero");
  const std::vector<std::int64_t> last{dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
  if (strides != last)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "strides {}, {}, {}, {} are not those of channels last",
                  strides[0], strides[1], strides[2], strides[3]);
  if (alignment < 2 || !std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    return refuse(CUDNN_STATUS_BAD_PARAM, "an alignment of {} bytes", alignment);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_convolution(const Descriptor& d) {
  if (d.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 ||
      d.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
      d.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED,
                  "only cross-correlation in two dimensions, computed in f32, is known here");
  const auto wrong = [&](cudnnBackendAttributeName_t name, std::int64_t least) {
    const auto values = d.get<std::int64_t>(name);
    return values.size() != 2 || values[0] < least || values[1] < least;
  };
  if (wrong(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0) || wrong(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1) ||
      wrong(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1))
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "paddings, dilations and strides must be two each, and not negative");
  if (d.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) !=
      d.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the padding before and behind must be alike here");
  return CUDNN_STATUS_SUCCESS;
}

ConvTensor tensor_of(const Descriptor& d) {
  const auto dims = d.get<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = d.get<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  return {d.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
          d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
          d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
          {dims[0], dims[1], dims[2], dims[3]},
          {strides[0], strides[1], strides[2], strides[3]}};
}

cudnnStatus_t check_shapes(const Convolution& c) {
  const auto &x = c.x.dims, &w = c.weight.dims, &y = c.y.dims;
  bool fits = x[0] == y[0] && x[1] % w[1] == 0 && w[0] == y[1] && y[1] % (x[1] / w[1]) == 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t room = x[2 + i] + 2 * c.padding[i] - c.dilation[i] * (w[2 + i] - 1) - 1;
    fits = fits && room >= 0 && y[2 + i] == room / c.stride[i] + 1;
  }
  if (!fits)
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                  "x {}x{}x{}x{}, weight {}x{}x{}x{} and y {}x{}x{}x{} do not go together", x[0], x[1], x[2],
                  x[3], w[0], w[1], w[2], w[3], y[0], y[1], y[2], y[3]);
  if (c.x.type != c.weight.type || c.x.type != c.y.type)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the tensors have different types");
  if (c.x.uid == c.weight.uid || c.x.uid == c.y.uid || c.weight.uid == c.y.uid)
    return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two tensors have the same unique id");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_operation(Descriptor& d) {
  // The rules of an operation are x, weight, y, convolution, alpha, beta.
  const Rule* rule =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& r) { return r.owner == d.type; });
  const auto pair = [&](cudnnBackendAttributeName_t name) {
    const auto v = d.other(rule[3].name)->get<std::int64_t>(name);
    return std::array{v[0], v[1]};
  };
  if (d.one<float>(rule[4].name) != 1 || d.one<float>(rule[5].name) != 0)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "alpha must be 1 and beta 0 here");
  d.convolution = {d.type,
                   tensor_of(*d.other(rule[0].name)),
                   tensor_of(*d.other(rule[1].name)),
                   tensor_of(*d.other(rule[2].name)),
                   pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                   pair(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                   pair(CUDNN_ATTR_CONVOLUTION_DILATIONS)};
  return check_shapes(*d.convolution);
}

cudnnStatus_t finalize_heuristics(Descriptor& d) {
  d.convolution = d.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->convolution;
  d.engines = engines_for(*d.convolution, d.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
  return d.engines.empty() ? refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine for this convolution")
                           : CUDNN_STATUS_SUCCESS;
}

/// Whether what a descriptor refers to, and so on, is not destroyed yet.
bool refers_to_the_living(const Descriptor& d) {
  const auto lives = [](const Shared& s) { return !s || (find(s.get()) && refers_to_the_living(*s)); };
  return lives(d.graph) && std::all_of(d.attributes.begin(), d.attributes.end(),
                                       [&](const auto& a) { return lives(a.second.refers); });
}

cudnnStatus_t finalize_plan(Descriptor& d) {
  const Descriptor& config = *d.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  d.convolution = config.convolution;
  d.engines = config.engines;
  return d.engines[0] == Engine::broken ? refuse(CUDNN_STATUS_NOT_SUPPORTED, "this engine makes no plans")
                                        : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(const Descriptor& d) {
  auto ids = d.get<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const std::size_t pointers = d.get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size();
  if (ids.size() != pointers)
    return refuse(CUDNN_STATUS_BAD_PARAM, "{} unique ids, {} pointers", ids.size(), pointers);
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) == ids.end()) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "a unique id comes twice");
}

cudnnStatus_t finalize(Descriptor& d) {
  for (const Rule& rule : kRules)
    if (rule.owner == d.type && !d.attributes.contains(rule.name))
      return refuse(CUDNN_STATUS_BAD_PARAM, "attribute {} was not set", int{rule.name});
  if (!refers_to_the_living(d))
    return refuse(CUDNN_STATUS_BAD_PARAM, "what this descriptor refers to was destroyed");
  switch (d.type) {
    case kTensor: return finalize_tensor(d);
    case kConvolution: return finalize_convolution(d);
    case kForward:
    case kData:
    case kFilter: return finalize_operation(d);
    case kGraph: d.convolution = d.other(CUDNN_ATTR_OPERATIONGRAPH_OPS)->convolution; break;
    case kHeuristics: return finalize_heuristics(d);
    case kPlan: return finalize_plan(d);
    case kPack: return finalize_pack(d);
    case kConfig:
    case kEngine: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "these come from heuristics only here");
  }
  return CUDNN_STATUS_SUCCESS;
}

/// Fills descriptors that the caller has made, each with one engine.
cudnnStatus_t fill(const Descriptor& from, cudnnBackendDescriptorType_t type, std::int64_t requested,
                   std::int64_t* count, void* elements) {
  const auto all = std::ssize(from.engines);
  *count = requested == 0 ? all : std::min<std::int64_t>(requested, all);
  for (std::int64_t i = 0; i < std::min(requested, *count); ++i) {
    const Shared d = find(static_cast<void**>(elements)[i]);
    if (!d || d->type != type || d->finalized)
      return refuse(CUDNN_STATUS_BAD_PARAM, "element {} is no empty descriptor of type {}", i, int{type});
    d->finalized = true;
    d->convolution = from.convolution;
    d->graph = type == kConfig ? from.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) : from.graph;
    d->engines = {from.engines[static_cast<std::size_t>(i)]};
  }
  return CUDNN_STATUS_SUCCESS;
}

/// What a plan runs on.
struct Run {
  Convolution convolution;
  Engine engine;
  const void *x = nullptr, *weight = nullptr, *y = nullptr;
  void* workspace = nullptr;
};

cudnnStatus_t check_memory(const ConvTensor& t, const void* p, int device) {
  if (device_of(p, t.bytes()) != device)
    return refuse(CUDNN_STATUS_BAD_PARAM,
                  "tensor {}: the {} bytes at {} do not lie in an allocation of device {}", t.uid, t.bytes(),
                  p, device);
  if (reinterpret_cast<std::uintptr_t>(p) % static_cast<std::uintptr_t>(t.alignment) == 0)
    return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "tensor {} at {} is not aligned to {}", t.uid, p,
                t.alignment);
}
cudnnStatus_t check_memory(const Run& run, int device) {
  for (const auto& [t, p] : {std::pair{&run.convolution.x, run.x},
                             {&run.convolution.weight, run.weight},
                             {&run.convolution.y, run.y}})
    if (const cudnnStatus_t e = check_memory(*t, p, device); e != CUDNN_STATUS_SUCCESS) return e;
  const std::size_t bytes = workspace_of(run.engine, run.convolution);
  if (device_of(run.workspace, bytes) != device)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the workspace at {} is not {} bytes of an allocation of device {}",
                  run.workspace, bytes, device);
  if (reinterpret_cast<std::uintptr_t>(run.workspace) % 256 == 0) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "the workspace at {} is not aligned to 256",
                run.workspace);
}

/// The run of a plan with a pack.
cudnnStatus_t make_run(void* plan, void* pack, cudnnHandle_t handle, std::optional<Run>& run) {
  const Shared p = find(plan), v = find(pack);
  if (!p || p->type != kPlan || !v || v->type != kPack)
    return refuse(CUDNN_STATUS_BAD_PARAM, "no plan, or no variant pack");
  if (!p->finalized || !v->finalized)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not finalized");
  if (!find(p->other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).get()))
    return refuse(CUDNN_STATUS_BAD_PARAM, "the plan's engine configuration is gone");
  if (p->one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the plan was made with another handle");
  const auto ids = v->get<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = v->get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  run = Run{*p->convolution, p->engines[0]};
  const Convolution& c = run->convolution;
  if (ids.size() != 3) return refuse(CUDNN_STATUS_BAD_PARAM, "{} tensors: the plan has 3", ids.size());
  for (std::size_t i = 0; i < 3; ++i) {
    if (ids[i] != c.x.uid && ids[i] != c.weight.uid && ids[i] != c.y.uid)
      return refuse(CUDNN_STATUS_BAD_PARAM, "the plan has no tensor {}", ids[i]);
    (ids[i] == c.x.uid ? run->x : ids[i] == c.y.uid ? run->y : run->weight) = pointers[i];
  }
  run->workspace = v->one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  return check_memory(*run, handle->device);
}

}  // namespace
}  // namespace cuda_on_host

using namespace cuda_on_host;

std::size_t cudnnGetVersion() {
  return 91900;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_SUCCESS == status ? 0 : status / 1000) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2: return "CUDNN_STATUS_BAD_PARAM";
    case 3: return "CUDNN_STATUS_NOT_SUPPORTED";
  }
  return "CUDNN_STATUS_EXECUTION_FAILED";
}
void cudnnGetLastErrorString(char* message, std::size_t bytes) {
  std::snprintf(message, bytes, "%s", t_text.c_str());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  std::lock_guard lock(library().mutex);
  static const int at_exit = std::atexit(look_for_leaks);
  if (at_exit != 0) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "leaks at exit would go unseen");
  library().handles.insert(*handle = new cudnnContext{current_device()});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  std::lock_guard lock(library().mutex);
  if (const cudnnStatus_t e = check_handle(handle); e != CUDNN_STATUS_SUCCESS) return e;
  library().handles.erase(handle);
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  std::lock_guard lock(library().mutex);
  if (const cudnnStatus_t e = check_handle(handle); e != CUDNN_STATUS_SUCCESS) return e;
  if (const cudaError_t e = check_stream(stream); e != cudaSuccess)
    return refuse(CUDNN_STATUS_BAD_PARAM, "{}", cudaGetErrorString(e));
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  std::lock_guard lock(library().mutex);
  auto made = std::make_shared<Descriptor>(Descriptor{type});
  library().descriptors[*descriptor = made.get()] = std::move(made);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  std::lock_guard lock(library().mutex);
  if (library().descriptors.erase(descriptor) == 1) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  std::lock_guard lock(library().mutex);
  const Shared d = find(descriptor);
  if (!d) return refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (d->finalized) return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  const cudnnStatus_t e = finalize(*d);
  d->finalized = e == CUDNN_STATUS_SUCCESS;
  return e;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* elements) {
  std::lock_guard lock(library().mutex);
  const Shared d = find(descriptor);
  if (!d) return refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (d->finalized) return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized: it cannot change");
  const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule& r) { return r.owner == d->type && r.name == name; });
  if (rule == std::end(kRules))
    return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor of type {} has no attribute {} here", int{d->type},
                  int{name});
  if (type != rule->type)
    return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute {} has type {}, not {}", int{name},
                  int{rule->type}, int{type});
  if (count < 1 || count > rule->most || !elements)
    return refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "attribute {}: {} elements at {}", int{name}, count,
                  elements);
  Attribute a;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const cudnnStatus_t e = check_reference(*rule, *static_cast<void* const*>(elements), a.refers);
    if (e != CUDNN_STATUS_SUCCESS) return e;
  } else if (type == CUDNN_TYPE_HANDLE) {
    const cudnnStatus_t e = check_handle(*static_cast<const cudnnHandle_t*>(elements));
    if (e != CUDNN_STATUS_SUCCESS) return e;
  }
  const auto* bytes = static_cast<const std::byte*>(elements);
  a.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * cuda_on_host::size_of(type));
  d->attributes[name] = std::move(a);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t requested,
                                       std::int64_t* count, void* elements) {
  std::lock_guard lock(library().mutex);
  const Shared d = find(descriptor);
  if (!d) return refuse(CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (!d->finalized) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
  if (requested < 0 || (requested > 0 && !elements))
    return refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "{} elements at {}", requested, elements);
  if (d->type == kHeuristics && name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == kOther)
    return fill(*d, kConfig, requested, count, elements);
  if (d->type == kConfig && name == CUDNN_ATTR_ENGINECFG_ENGINE && type == kOther)
    return fill(*d, kEngine, requested, count, elements);
  if (d->type == kEngine && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
    const auto notes = notes_of(d->engines[0]);
    *count = std::min<std::int64_t>(requested, std::ssize(notes));
    std::copy_n(notes.begin(), *count, static_cast<cudnnBackendNumericalNote_t*>(elements));
    return CUDNN_STATUS_SUCCESS;
  }
  if (d->type == kPlan && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 &&
      requested == 1) {
    *count = 1;
    *static_cast<std::int64_t*>(elements) =
        static_cast<std::int64_t>(workspace_of(d->engines[0], *d->convolution));
    return CUDNN_STATUS_SUCCESS;
  }
  return refuse(CUDNN_STATUS_BAD_PARAM, "attribute {} of type {} cannot be got from a descriptor of type {}",
                int{name}, int{type}, int{d->type});
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  std::lock_guard lock(library().mutex);
  if (const cudnnStatus_t e = check_handle(handle); e != CUDNN_STATUS_SUCCESS) return e;
  std::optional<Run> run;
  if (const cudnnStatus_t e = make_run(plan, pack, handle, run); e != CUDNN_STATUS_SUCCESS) return e;
  const cudaError_t queued = enqueue(handle->stream, [run = *run, device = handle->device] {
    if (check_memory(run, device) != CUDNN_STATUS_SUCCESS)
      return error(cudaErrorLaunchFailure, "cudnnBackendExecute: {}", t_text);
    compute(run.engine, run.convolution, run.x, run.weight, run.y, run.workspace);
    return cudaSuccess;
  });
  if (queued == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  return refuse(CUDNN_STATUS_EXECUTION_FAILED, "{}", cudaGetErrorString(queued));
}
