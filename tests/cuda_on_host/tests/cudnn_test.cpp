// What the double of cuDNN refuses, and what its engines are there for.
#include <cuda_runtime.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_on_host/schedules.h"

namespace {

/// The text of what was refused, "" if it was not.
std::string text_of(cudnnStatus_t result) {
  char text[512] = "";
  if (result != CUDNN_STATUS_SUCCESS) cudnnGetLastErrorString(text, sizeof text);
  return text;
}
void expect_part(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

/// x 1x1x3x3 (n, c, h, w), a weight of 2x1x2x2 and y 1x2x2x2, on device 0.
class Cudnn : public testing::Test {
 protected:
  using Handle = cudnnBackendDescriptor_t;

  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudnnSetStream(handle_, stream_), CUDNN_STATUS_SUCCESS);
    for (void** p : {&x_, &weight_, &y_}) ASSERT_EQ(cudaMalloc(p, 64), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&workspace_, 1024), cudaSuccess);
    for (int i = 0; i < 16; ++i) {
      static_cast<float*>(x_)[i] = static_cast<float>(i + 1);
      static_cast<float*>(weight_)[i] = 1 + 1e-5f;  // of no power of two, and more than 10 bits
    }
  }
  void TearDown() override {
    for (const Handle d : made_) EXPECT_EQ(cudnnBackendDestroyDescriptor(d), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnDestroy(handle_), CUDNN_STATUS_SUCCESS);
    cudaStreamDestroy(stream_);
    for (void* p : {x_, weight_, y_, workspace_}) cudaFree(p);
    cudaGetLastError();
  }

  Handle make(cudnnBackendDescriptorType_t type) {
    Handle d = nullptr;
    cudnnBackendCreateDescriptor(type, &d);
    made_.push_back(d);
    return d;
  }
  template <class V, std::size_t N>
  static std::string set(Handle d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         const std::array<V, N>& values) {
    return text_of(cudnnBackendSetAttribute(d, name, type, N, values.data()));
  }
  static std::string set(Handle d, cudnnBackendAttributeName_t name, Handle other) {
    return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::array{other});
  }
  static std::string finalized(Handle d) { return text_of(cudnnBackendFinalize(d)); }

  using Four = std::array<std::int64_t, 4>;
  Handle tensor(std::int64_t id, Four dims, Four strides, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    const Handle d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::array{id});
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::array{type});
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::array{std::int64_t{16}});
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    return d;
  }
  static Four last(const Four& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }
  Handle tensor(std::int64_t id, const Four& dims) {
    const Handle d = tensor(id, dims, last(dims));
    EXPECT_EQ(finalized(d), "");
    return d;
  }
  Handle convolution() {
    using Two = std::array<std::int64_t, 2>;
    const Handle d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::array{std::int64_t{2}});
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::array{CUDNN_DATA_FLOAT});
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
        std::array{CUDNN_CROSS_CORRELATION});
    set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, Two{0, 0});
    set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, Two{0, 0});
    set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, Two{1, 1});
    set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, Two{1, 1});
    EXPECT_EQ(finalized(d), "");
    return d;
  }
  /// Not finalized.
  Handle operation(const Four& y_dims = {1, 2, 2, 2}, std::int64_t y_id = 3) {
    const Handle d = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(1, {1, 1, 3, 3}));
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(2, {2, 1, 2, 2}));
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor(y_id, y_dims));
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution());
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::array{1.0f});
    set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::array{0.0f});
    return d;
  }
  /// Configurations of the engines, in the order in which they are offered.
  std::vector<Handle> configurations(cudnnBackendHeurMode_t mode) {
    const Handle operations = operation(), graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    EXPECT_EQ(finalized(operations), "");
    EXPECT_EQ(set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::array{handle_}), "");
    EXPECT_EQ(set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operations), "");
    EXPECT_EQ(finalized(graph), "");
    const Handle d = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    EXPECT_EQ(set(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph), "");
    EXPECT_EQ(set(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::array{mode}), "");
    EXPECT_EQ(finalized(d), "");
    std::int64_t count = 0;
    const auto results = [&](std::int64_t requested, Handle* to) {
      EXPECT_EQ(text_of(cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, requested, &count, to)),
                "");
    };
    results(0, nullptr);
    std::vector<Handle> found;
    for (std::int64_t i = 0; i < count; ++i) found.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    results(count, found.data());
    return found;
  }
  /// Not finalized.
  Handle plan(Handle configuration) {
    const Handle d = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    EXPECT_EQ(set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::array{handle_}), "");
    EXPECT_EQ(set(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration), "");
    return d;
  }
  Handle exact_plan() {
    const Handle d = plan(configurations(CUDNN_HEUR_MODE_FALLBACK).at(0));
    EXPECT_EQ(finalized(d), "");
    return d;
  }
  Handle pack(const void* x, const void* y, void* workspace, std::array<std::int64_t, 3> ids = {1, 2, 3}) {
    const Handle d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
        std::array{const_cast<void*>(x), weight_, const_cast<void*>(y)});
    set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::array{workspace});
    return d;
  }
  std::string run(Handle plan, Handle pack) {
    const std::string text = finalized(pack);
    return text.empty() ? text_of(cudnnBackendExecute(handle_, plan, pack)) : text;
  }
  float first_result() const { return *static_cast<const float*>(y_); }

  cudnnHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void *x_ = nullptr, *weight_ = nullptr, *y_ = nullptr, *workspace_ = nullptr;
  std::vector<Handle> made_;
};

TEST_F(Cudnn, RefusesWrongAttributes) {
  const Handle d = tensor(1, {1, 2, 3, 4}, {24, 1, 8, 2});
  const std::array<std::int64_t, 1> one{1};
  expect_part("has no attribute 106", set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, one));
  expect_part("has type 3, not 4", set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, one));
  expect_part("2 elements", set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::array{1l, 2l}));
  EXPECT_EQ(finalized(d), "");
  expect_part("cannot change", set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, one));
  expect_part("attribute 906 was not set", finalized(make(CUDNN_BACKEND_TENSOR_DESCRIPTOR)));
  expect_part("channels last", finalized(tensor(1, {1, 2, 3, 4}, {24, 12, 4, 1})));
  expect_part("dimension of zero", finalized(tensor(1, {1, 0, 3, 4}, {0, 1, 0, 0})));
}

TEST_F(Cudnn, RefusesWrongReferences) {
  const Handle d = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  constexpr auto kX = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X;
  expect_part("refers to a descriptor of type 1", set(d, kX, convolution()));
  expect_part("not finalized", set(d, kX, tensor(1, {1, 2, 3, 4}, {24, 1, 8, 2})));
  Handle gone = nullptr;
  cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &gone);
  cudnnBackendDestroyDescriptor(gone);
  expect_part("refers to no descriptor", set(d, kX, gone));
  expect_part("no such descriptor", text_of(cudnnBackendDestroyDescriptor(gone)));
  const Handle whole = operation();
  cudnnBackendDestroyDescriptor(made_.back());  // its convolution
  made_.pop_back();
  expect_part("was destroyed", finalized(whole));
}

TEST_F(Cudnn, RefusesWhatDoesNotGoTogether) {
  expect_part("do not go together", finalized(operation({1, 2, 3, 2})));
  expect_part("same unique id", finalized(operation({1, 2, 2, 2}, 2)));
  expect_part("come from heuristics", finalized(make(CUDNN_BACKEND_ENGINE_DESCRIPTOR)));
}

TEST_F(Cudnn, Computes) {
  const Handle p = exact_plan();
  EXPECT_EQ(run(p, pack(x_, y_, workspace_)), "");
  EXPECT_NEAR(first_result(), (1 + 2 + 4 + 5) * (1 + 1e-5), 1e-6);
}

TEST_F(Cudnn, RefusesWrongMemory) {
  const Handle p = exact_plan();
  const std::array<float, 16> host{};
  expect_part("tensor 1: the 36 bytes", run(p, pack(host.data(), y_, workspace_)));
  expect_part("is not aligned to 16", run(p, pack(static_cast<float*>(x_) + 1, y_, workspace_)));
  expect_part("tensor 3: the 32 bytes", run(p, pack(x_, static_cast<float*>(y_) + 12, workspace_)));
  expect_part("the workspace at", run(p, pack(x_, y_, nullptr)));
  expect_part("is not 116 bytes", run(p, pack(x_, y_, static_cast<char*>(workspace_) + 1024 - 100)));
  expect_part("not aligned to 256", run(p, pack(x_, y_, static_cast<char*>(workspace_) + 64)));
  expect_part("no tensor 4", run(p, pack(x_, y_, workspace_, {1, 2, 4})));
  expect_part("comes twice", run(p, pack(x_, y_, workspace_, {1, 2, 2})));
  cudaSetDevice(1);
  expect_part("the handle is of device 0", run(p, pack(x_, y_, workspace_)));
  cudaSetDevice(0);
}

TEST_F(Cudnn, OffersEnginesThatMustNotBeTaken) {
  const std::vector<Handle> all = configurations(CUDNN_HEUR_MODE_A);
  ASSERT_EQ(all.size(), 5u);
  expect_part("makes no plans", finalized(plan(all[3])));
  const auto result = [&](std::size_t engine) {
    const Handle p = plan(all[engine]);
    EXPECT_EQ(finalized(p), "");
    EXPECT_EQ(run(p, pack(x_, y_, workspace_)), "");
    return first_result();
  };
  EXPECT_NE(result(0), result(0)) << "it is not deterministic";
  EXPECT_EQ(result(4), 12) << "with operands in tf32";
  const Handle hungry = plan(all[2]);
  EXPECT_EQ(finalized(hungry), "");
  expect_part("1099511627776 bytes", run(hungry, pack(x_, y_, workspace_)));
}

TEST_F(Cudnn, WorksWhenItsStreamDoes) {
  const Handle p = exact_plan();
  *static_cast<float*>(y_) = 0;
  cuda_on_host::streams() = cuda_on_host::Streams::late;
  EXPECT_EQ(run(p, pack(x_, y_, workspace_)), "");
  EXPECT_EQ(first_result(), 0);
  void* early = nullptr;
  cudaMalloc(&early, 64);
  EXPECT_EQ(run(p, pack(x_, early, workspace_)), "");
  cudaFreeAsync(early, nullptr);  // not on the stream that computes
  EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_NE(first_result(), 0);
  cuda_on_host::streams() = cuda_on_host::Streams::prompt;
}

TEST(CudnnLeaks, EndTheProgramWithAnError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto leave_descriptor = [] {
    cudnnHandle_t handle = nullptr;
    cudnnBackendDescriptor_t d = nullptr;
    cudnnCreate(&handle);
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d);
    std::exit(0);
  };
  EXPECT_EXIT(leave_descriptor(), testing::ExitedWithCode(1), "1 cuDNN descriptors were not destroyed");
  const auto make_handle_again = [] {
    cudnnHandle_t handle = nullptr;
    cudnnCreate(&handle);
    cudnnCreate(&handle);
    std::exit(0);
  };
  EXPECT_EXIT(make_handle_again(), testing::ExitedWithCode(1), "1 plans or handles were made again");
}

}  // namespace
