// What the double of cuBLASLt computes, and what it refuses.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/cuda_on_host/schedules.h"

namespace {

/// Floats in device memory.
struct Floats {
  float* at = nullptr;
  std::size_t n;
  explicit Floats(const std::vector<float>& values) : n(values.size()) {
    cudaMalloc(&at, n * sizeof *at);
    cudaMemcpy(at, values.data(), n * sizeof *at, cudaMemcpyHostToDevice);
  }
  Floats(const Floats&) = delete;
  ~Floats() { cudaFree(at); }
  std::vector<float> values() const { return {at, at + n}; }  // as they are now
};

/// d (2x3) = a (2x2) b (2x3) + bias, column-major: each member is an argument of a call, and may be spoilt.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t best = {};
  Floats a_values{{1, 2, 3, 4}}, b_values{{1, 0, 0, 1, 1, 1}}, bias{{10, 20}}, d_values{{0, 0, 0, 0, 0, 0}};
  Floats workspace{std::vector<float>(64)};
  const void *a_at = a_values.at, *b_at = b_values.at;
  void *d_at = d_values.at, *workspace_at = workspace.at;
  std::size_t workspace_bytes = 256;
  float alpha = 1, beta = 0;
  const float* alpha_at = &alpha;
  cudaStream_t stream = nullptr;

  explicit Product(cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 2, 2, 2);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 2, 3, 2);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 2, 3, 2);
    cublasLtMatmulPreferenceCreate(&preference);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{256});
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.at));
  }
  Product(const Product&) = delete;
  ~Product() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
  }

  template <class T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, T value) {
    return cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value);
  }
  template <class T>
  cublasStatus_t prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  }
  void relayout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, std::uint64_t rows,
                std::uint64_t columns) {
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatrixLayoutCreate(&layout, type, rows, columns, static_cast<std::int64_t>(rows));
  }

  cublasStatus_t choose() {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, d, d, preference, 1, &best, &found);
  }
  cublasStatus_t run() {
    return cublasLtMatmul(handle, operation, alpha_at, a_at, a, b_at, b, &beta, d_at, d, d_at, d, &best.algo,
                          workspace_at, workspace_bytes, stream);
  }
};

/// The text of a refusal, "" if there was none.
std::string text_of(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "" : cublasLtGetStatusString(status);
}
void expect_part(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}
/// That a product whose descriptors were spoilt is refused as it is chosen, with this in the text.
void expect_not_chosen(const std::string& part, const std::function<void(Product&)>& spoil) {
  Product p;
  spoil(p);
  expect_part(part, text_of(p.choose()));
}
/// That a product that was spoilt after the choice is refused as it runs.
void expect_not_run(const std::string& part, const std::function<void(Product&)>& spoil) {
  Product p;
  ASSERT_EQ(text_of(p.choose()), "");
  spoil(p);
  expect_part(part, text_of(p.run()));
}

TEST(CublasLt, Multiplies) {
  Product p;
  ASSERT_EQ(text_of(p.choose()), "");
  EXPECT_GT(p.best.workspaceSize, 0u) << "so that a caller without one is noticed";
  ASSERT_EQ(text_of(p.run()), "");
  EXPECT_EQ(p.d_values.values(), (std::vector<float>{11, 22, 13, 24, 14, 26}));
  p.beta = 1;
  ASSERT_EQ(text_of(p.run()), "");
  EXPECT_EQ(p.d_values.values(), (std::vector<float>{22, 44, 26, 48, 28, 52}));
  p.beta = 0;
  p.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  ASSERT_EQ(text_of(p.choose()), "");
  ASSERT_EQ(text_of(p.run()), "");
  EXPECT_EQ(p.d_values.values(), (std::vector<float>{11, 23, 12, 24, 13, 27}));
}

TEST(CublasLt, RoundsOperandsToTf32WhereThatIsAllowed) {
  for (const bool tf32 : {false, true}) {
    Product p(tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    p.a_values.at[0] = 1 + 0x1p-12f;
    ASSERT_EQ(text_of(p.choose()), "");
    ASSERT_EQ(text_of(p.run()), "");
    EXPECT_EQ(p.d_values.values()[0], tf32 ? 11 : 11 + 0x1p-12f);
  }
}

TEST(CublasLt, RefusesDescriptorsThatDoNotFit) {
  expect_not_chosen("op(a) is 2x3, op(b) 2x3", [](Product& p) { p.relayout(p.a, CUDA_R_32F, 2, 3); });
  expect_not_chosen("d 3x2", [](Product& p) { p.relayout(p.d, CUDA_R_32F, 3, 2); });
  expect_not_chosen("a, b, c, d of types 14, 0, 0, 0",
                    [](Product& p) { p.relayout(p.a, CUDA_R_16BF, 2, 2); });
  expect_not_chosen("no such layout: of b", [](Product& p) { cublasLtMatrixLayoutDestroy(p.b); });
  expect_not_chosen("go together",
                    [](Product& p) { p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT); });
  expect_not_chosen("reduction schemes 7", [](Product& p) {
    p.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{7});
  });
  expect_not_chosen("the current one is 1", [](Product&) { cudaSetDevice(1); });
  cudaSetDevice(0);
  Product p;
  expect_part("the attribute has 4 bytes, found 8", text_of(p.set(CUBLASLT_MATMUL_DESC_TRANSA, 0L)));
  cublasLtMatrixLayout_t none = nullptr;
  expect_part("leading dimension 3", text_of(cublasLtMatrixLayoutCreate(&none, CUDA_R_32F, 4, 2, 3)));
  expect_part("0 columns", text_of(cublasLtMatrixLayoutCreate(&none, CUDA_R_32F, 4, 0, 4)));
  expect_part("destroyed before", text_of(cublasLtMatmulDescDestroy(nullptr)));
}

TEST(CublasLt, RefusesAnAlgorithmOfAnotherProduct) {
  Product p;
  expect_part("no algorithm was chosen", text_of(p.run()));
  expect_not_run("for another product", [](Product& q) { q.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T); });
  Product q;
  q.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{4});
  ASSERT_EQ(text_of(q.choose()), "");
  const Floats five({0, 1, 2, 3, 4});
  q.a_at = five.at + 1;
  EXPECT_EQ(text_of(q.run()), "") << "no more alignment was promised";
  expect_not_run("a is aligned to 4 bytes, the algorithm was chosen for 256",
                 [&](Product& r) { r.a_at = five.at + 1; });
}

TEST(CublasLt, RefusesWrongMemory) {
  static float host[64];
  expect_not_run("a workspace of 64 bytes, the algorithm needs 96",
                 [](Product& p) { p.workspace_bytes = 64; });
  expect_not_run("the workspace", [](Product& p) { p.workspace_bytes = 512; });
  alignas(256) static float host_workspace[64];
  expect_not_run("the workspace", [](Product& p) { p.workspace_at = host_workspace; });
  const auto lax = [](Product& p) {
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      p.prefer(attribute, std::uint32_t{4});
    EXPECT_EQ(text_of(p.choose()), "");
  };
  expect_not_run("a: 16 bytes", [&](Product& p) { lax(p), p.a_at = host; });
  expect_not_run("d: 24 bytes", [&](Product& p) { lax(p), p.d_at = p.d_values.at + 1; });
  expect_not_run("b: 24 bytes", [&](Product& p) { lax(p), p.b_at = p.a_values.at; });
  expect_not_run("a overlaps d", [&](Product& p) { lax(p), p.a_at = p.d_values.at + 1; });
  expect_not_run("b overlaps the workspace", [&](Product& p) { lax(p), p.b_at = p.workspace.at + 1; });
  expect_not_run("host memory", [](Product& p) { p.alpha_at = p.a_values.at; });
  cudaSetDevice(1);
  const Floats elsewhere({1, 2, 3, 4});
  cudaSetDevice(0);
  expect_not_run("not live memory of device 0", [&](Product& p) { p.a_at = elsewhere.at; });
}

/// A product on one stream of what another stream brings, with and without the wait for that.
float first_element(bool waits) {
  Product p;
  const Floats fresh({5, 6, 7, 8});
  cudaEvent_t brought = nullptr;
  cudaStream_t other = nullptr;
  EXPECT_EQ(text_of(p.choose()), "");
  cuda_on_host::streams() = cuda_on_host::Streams::late;
  cudaEventCreateWithFlags(&brought, cudaEventDisableTiming);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&p.stream, cudaStreamNonBlocking);
  cudaMemcpyAsync(p.a_values.at, fresh.at, 16, cudaMemcpyDeviceToDevice, other);
  cudaEventRecord(brought, other);
  if (waits) cudaStreamWaitEvent(p.stream, brought);
  EXPECT_EQ(text_of(p.run()), "");
  EXPECT_EQ(p.d_values.values()[0], 0) << "not before something waits for it";
  cudaStreamSynchronize(p.stream);
  const float found = p.d_values.values()[0];
  cudaStreamDestroy(p.stream);
  cudaStreamDestroy(other);
  cudaEventDestroy(brought);
  cuda_on_host::streams() = cuda_on_host::Streams::prompt;
  return found;
}
TEST(CublasLt, AMissingWaitShowsInTheResult) {
  EXPECT_EQ(first_element(true), 15);
  EXPECT_EQ(first_element(false), 11);
}

TEST(CublasLt, FindsMemoryThatWasFreedTooEarly) {
  Product p;
  EXPECT_EQ(text_of(p.choose()), "");
  float* gone = nullptr;
  cudaMalloc(&gone, 16);
  p.a_at = gone;
  cuda_on_host::streams() = cuda_on_host::Streams::late;
  cudaStreamCreateWithFlags(&p.stream, cudaStreamNonBlocking);
  EXPECT_EQ(text_of(p.run()), "");
  cudaFreeAsync(gone, nullptr);  // not on the stream that multiplies
  EXPECT_EQ(cudaStreamSynchronize(p.stream), cudaErrorLaunchFailure);
  expect_part("when its turn came: a: 16 bytes", cudaGetErrorString(cudaGetLastError()));
  cudaStreamDestroy(p.stream);
  cuda_on_host::streams() = cuda_on_host::Streams::prompt;
}

TEST(CublasLt, LeaksEndTheProgramWithAnError) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto leave = [](int handles, int layouts) {
    cublasLtHandle_t handle = nullptr;
    for (int i = 0; i < handles; ++i) cublasLtCreate(&handle);
    cublasLtMatrixLayout_t layout = nullptr;
    for (int i = 0; i < layouts; ++i) cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 2, 2, 2);
    std::exit(0);
  };
  EXPECT_EXIT(leave(1, 0), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(leave(1, 1), testing::ExitedWithCode(1), "1 objects of cuBLASLt were not destroyed");
  EXPECT_EXIT(leave(2, 1), testing::ExitedWithCode(1), "2 objects of cuBLASLt were not destroyed");
}

}  // namespace
