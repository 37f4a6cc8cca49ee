#include <cublasLt.h>

#include "runtime/cuda/late/libraries.h"

namespace ssn {

LateLibrary& cublas_lt() {
  // What this project uses of it is the same in both versions; that of the build's CUDA first.
  static LateLibrary& made =
      *new LateLibrary("cuBLASLt", CUBLAS_VER_MAJOR == 12
                                       ? std::vector<std::string>{"libcublasLt.so.12", "libcublasLt.so.13"}
                                       : std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12"});
  return made;
}

}  // namespace ssn

namespace {

template <class F>
struct Late : ssn::LateFunction<F> {
  explicit Late(const char* name) : ssn::LateFunction<F>(ssn::cublas_lt(), name) {}
};

Late<decltype(cublasLtCreate)> create("cublasLtCreate");
Late<decltype(cublasLtGetStatusName)> get_status_name("cublasLtGetStatusName");
Late<decltype(cublasLtGetStatusString)> get_status_string("cublasLtGetStatusString");
Late<decltype(cublasLtGetVersion)> get_version("cublasLtGetVersion");
Late<decltype(cublasLtMatmul)> matmul("cublasLtMatmul");
Late<decltype(cublasLtMatmulAlgoGetHeuristic)> algo_get_heuristic("cublasLtMatmulAlgoGetHeuristic");
Late<decltype(cublasLtMatmulDescCreate)> desc_create("cublasLtMatmulDescCreate");
Late<decltype(cublasLtMatmulDescDestroy)> desc_destroy("cublasLtMatmulDescDestroy");
Late<decltype(cublasLtMatmulDescSetAttribute)> desc_set("cublasLtMatmulDescSetAttribute");
Late<decltype(cublasLtMatmulPreferenceCreate)> preference_create("cublasLtMatmulPreferenceCreate");
Late<decltype(cublasLtMatmulPreferenceDestroy)> preference_destroy("cublasLtMatmulPreferenceDestroy");
Late<decltype(cublasLtMatmulPreferenceSetAttribute)> preference_set("cublasLtMatmulPreferenceSetAttribute");
Late<decltype(cublasLtMatrixLayoutCreate)> layout_create("cublasLtMatrixLayoutCreate");
Late<decltype(cublasLtMatrixLayoutDestroy)> layout_destroy("cublasLtMatrixLayoutDestroy");

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return create(handle);
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return get_status_name(status);
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return get_status_string(status);
}
size_t cublasLtGetVersion() {
  return get_version();
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                              cudaStream_t stream) {
  return matmul(handle, description, alpha, a, layout_a, b, layout_b, beta, c, layout_c, d, layout_d,
                algorithm, workspace, bytes, stream);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return algo_get_heuristic(handle, description, a, b, c, d, preference, wanted, results, found);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return desc_create(made, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return desc_destroy(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  return desc_set(description, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return preference_create(made);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return preference_destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return preference_set(preference, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  return layout_create(made, type, rows, columns, stride);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return layout_destroy(layout);
}
