#include "kernels/cuda/cudnn_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/cuda/cudnn_check.h"
#include "runtime/log.h"

namespace ssn::kernels {
namespace {

constexpr const char* kWhere = "convolution's plan";
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 30;  // bytes
constexpr std::int64_t kX = 1, kWeight = 2, kY = 3;             // the tensors' unique ids

// Of a GPU that is described: known to cuDNN 9.8 and newer, named in their headers only.
constexpr auto kDeviceDescriptor = static_cast<cudnnBackendDescriptorType_t>(38);
constexpr auto kDeviceJson = static_cast<cudnnBackendAttributeName_t>(2702);
constexpr auto kHeuristicsDevice = static_cast<cudnnBackendAttributeName_t>(204);
constexpr auto kPlanDevice = static_cast<cudnnBackendAttributeName_t>(407);
constexpr auto kCharacters = static_cast<cudnnBackendAttributeType_t>(24);

template <class V>
constexpr cudnnBackendAttributeType_t kType = CUDNN_TYPE_VOID_PTR;
template <>
constexpr cudnnBackendAttributeType_t kType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
constexpr cudnnBackendAttributeType_t kType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
constexpr cudnnBackendAttributeType_t kType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
constexpr cudnnBackendAttributeType_t kType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
constexpr cudnnBackendAttributeType_t kType<std::int64_t> = CUDNN_TYPE_INT64;
template <>
constexpr cudnnBackendAttributeType_t kType<float> = CUDNN_TYPE_FLOAT;

/// One of cuDNN's backend descriptors.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnn_check(cudnnBackendCreateDescriptor(type, &handle_), kWhere);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  cudnnBackendDescriptor_t get() const { return handle_; }

  template <class V, std::size_t N>
  void set(cudnnBackendAttributeName_t name, const std::array<V, N>& values) {
    cudnn_check(cudnnBackendSetAttribute(handle_, name, kType<V>, N, values.data()), kWhere);
  }
  template <class V>
  void set(cudnnBackendAttributeName_t name, V value) {
    set(name, std::array{value});
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    cudnn_check(cudnnBackendSetAttribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.handle_),
                kWhere);
  }
  void set(cudnnBackendAttributeName_t name, std::string_view text) {
    cudnn_check(cudnnBackendSetAttribute(handle_, name, kCharacters, std::ssize(text), text.data()), kWhere);
  }
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }
  void finalize() { cudnn_check(try_finalize(), kWhere); }

  /// Fills `values`; returns how many there are.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                   void* values) const {
    std::int64_t found = 0;
    cudnn_check(cudnnBackendGetAttribute(handle_, name, type, count, &found, values), kWhere);
    return found;
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

/// What plans are for: the GPU of a handle, or one that is described.
class PlanDevice {
 public:
  explicit PlanDevice(cudnnHandle_t handle) : handle_(handle) {}
  explicit PlanDevice(std::string_view properties) : described_(std::in_place, kDeviceDescriptor) {
    described_->set(kDeviceJson, properties);
    described_->finalize();
  }
  void name_in_graph(Descriptor& graph) const {
    if (!described_) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
  }
  void name_in_heuristics(Descriptor& heuristics) const {
    if (described_) heuristics.set(kHeuristicsDevice, *described_);
  }
  void name_in_plan(Descriptor& plan) const {
    if (described_)
      plan.set(kPlanDevice, *described_);
    else
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<Descriptor> described_;
};

/// Dimensions in cuDNN's order, n, c, h, w; in memory the channels are last.
Descriptor tensor(std::int64_t id, bool half, std::int64_t n, std::int64_t c, std::int64_t h,
                  std::int64_t w) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{kCudnnAlignment});
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::array{n, c, h, w});
  d.set(CUDNN_ATTR_TENSOR_STRIDES, std::array{h * w * c, std::int64_t{1}, w * c, c});
  d.finalize();
  return d;
}

Descriptor describe(const ConvGeometry& g) {
  const auto pair = [](const std::int64_t(&v)[2]) { return std::array{v[0], v[1]}; };
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pair(g.padding));
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pair(g.padding));
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, pair(g.dilation));
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, pair(g.stride));
  d.finalize();
  return d;
}

/// What a pass is called in cuDNN.
struct PassNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, weight, y, convolution, alpha, beta;
};
PassNames names_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvPass::data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvPass::weight: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// A graph of the one operation. The groups follow from the channels of x and the weight. cuDNN does not say
/// when it needs no more what a descriptor refers to, so all live as long as the graph.
struct Graph {
  Descriptor x, weight, y, convolution, operation, graph;

  Graph(const PlanDevice& device, const ConvPlanKey& key)
      : x(tensor(kX, key.half, key.g.n, key.g.c, key.g.h, key.g.w)),
        weight(tensor(kWeight, key.half, key.g.o, key.g.c / key.g.groups, key.g.kh, key.g.kw)),
        y(tensor(kY, key.half, key.g.n, key.g.o, key.g.out_h(), key.g.out_w())),
        convolution(describe(key.g)),
        operation(names_of(key.pass).type),
        graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    const PassNames names = names_of(key.pass);
    operation.set(names.x, x);
    operation.set(names.weight, weight);
    operation.set(names.y, y);
    operation.set(names.convolution, convolution);
    operation.set(names.alpha, 1.0f);
    operation.set(names.beta, 0.0f);
    operation.finalize();
    device.name_in_graph(graph);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    graph.finalize();
  }
};

/// Whether the engine of a configuration is deterministic and as exact as asked for.
bool is_wanted(const ConvPlanKey& key, const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t filled = engine.get();
  configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &filled);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes.size(), notes.data());
  return std::none_of(notes.begin(), notes.begin() + count, [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return true;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:  // to f16
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return !key.half;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return !key.half && !key.tf32;
      default: return false;
    }
  });
}

/// What the heuristics have found, the best first; nothing where they do not know the operation.
std::vector<Descriptor> configurations(const PlanDevice& device, const Descriptor& graph,
                                       cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  device.name_in_heuristics(heuristics);
  std::vector<Descriptor> found;
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) return found;
  constexpr auto kResults = CUDNN_ATTR_ENGINEHEUR_RESULTS;
  const std::int64_t count = heuristics.get(kResults, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i)
    handles.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  const std::int64_t filled = heuristics.get(kResults, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, handles.data());
  while (std::ssize(found) > filled) found.pop_back();
  return found;
}

}  // namespace

class ConvPlan {
 public:
  /// None if cuDNN refuses the configuration, or it needs too much workspace.
  static std::optional<ConvPlan> make(const PlanDevice& device, Descriptor configuration) {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    device.name_in_plan(plan);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
    std::int64_t bytes = 0;
    plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    if (bytes > kMostWorkspace) return {};
    return ConvPlan(std::move(configuration), std::move(plan), static_cast<std::size_t>(bytes));
  }
  const Descriptor& plan() const { return plan_; }
  std::size_t workspace() const { return workspace_; }

 private:
  ConvPlan(Descriptor configuration, Descriptor plan, std::size_t workspace)
      : configuration_(std::move(configuration)), plan_(std::move(plan)), workspace_(workspace) {}

  Descriptor configuration_, plan_;  // the plan refers to its configuration
  std::size_t workspace_;
};

namespace {

/// cuDNN of the queue's device. Lives as long as the program, as the plans do: at its end, parts of cuDNN,
/// which it loads when it needs them, may be gone first.
struct Library {
  cudnnHandle_t handle = nullptr;
  CUstream_st* stream = nullptr;  // the handle's
  std::map<ConvPlanKey, std::optional<ConvPlan>> plans;
  std::mutex mutex;

  Library() { cudnn_check(cudnnCreate(&handle), "start cuDNN"); }
};
Library& library() {
  static Library& made = *new Library;
  return made;
}

std::optional<ConvPlan> find_plan(const PlanDevice& device, const ConvPlanKey& key) {
  const Graph operations(device, key);
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (Descriptor& configuration : configurations(device, operations.graph, mode)) {
      if (!is_wanted(key, configuration)) continue;
      if (auto plan = ConvPlan::make(device, std::move(configuration))) return plan;
    }
  constexpr const char* kNames[] = {"convolutions", "gradients of inputs", "gradients of weights"};
  warn("cuDNN {} has no deterministic way for {} of {} in {}: a slow one is taken instead", cudnnGetVersion(),
       kNames[static_cast<int>(key.pass)], key.g.text(),
       key.half   ? "bf16"
       : key.tf32 ? "tf32"
                  : "f32");
  return {};
}

}  // namespace

const ConvPlan* conv_plan(const ConvPlanKey& key) {
  Library& l = library();
  std::lock_guard lock(l.mutex);
  auto found = l.plans.find(key);
  if (found == l.plans.end()) found = l.plans.emplace(key, find_plan(PlanDevice(l.handle), key)).first;
  return found->second ? &*found->second : nullptr;
}

std::optional<std::size_t> conv_workspace_on(std::string_view properties, const ConvPlanKey& key) {
  const PlanDevice device(properties);
  const auto plan = find_plan(device, key);
  return plan ? std::optional(plan->workspace()) : std::nullopt;
}

std::size_t workspace_of(const ConvPlan& plan) {
  return plan.workspace();
}

void run(CudaQueue& q, Where where, const ConvPlan& plan, const void* x, const void* weight, const void* y,
         void* workspace) {
  Library& l = library();
  std::lock_guard lock(l.mutex);
  if (l.stream != q.stream) {
    cudnn_check(cudnnSetStream(l.handle, q.stream), where);
    l.stream = q.stream;
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::array{kX, kWeight, kY});
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
           std::array{const_cast<void*>(x), const_cast<void*>(weight), const_cast<void*>(y)});
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  pack.finalize();
  cudnn_check(cudnnBackendExecute(l.handle, plan.plan().get(), pack.get()), where);
}

}  // namespace ssn::kernels
