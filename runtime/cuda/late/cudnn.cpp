#include <cudnn_graph.h>

#include "runtime/cuda/late/libraries.h"

namespace ssn {

LateLibrary& cudnn() {
  static LateLibrary& made = *new LateLibrary("cuDNN", {"libcudnn.so.9"});
  return made;
}

}  // namespace ssn

namespace {

template <class F>
struct Late : ssn::LateFunction<F> {
  explicit Late(const char* name) : ssn::LateFunction<F>(ssn::cudnn(), name) {}
};

Late<decltype(cudnnBackendCreateDescriptor)> create_descriptor("cudnnBackendCreateDescriptor");
Late<decltype(cudnnBackendDestroyDescriptor)> destroy_descriptor("cudnnBackendDestroyDescriptor");
Late<decltype(cudnnBackendExecute)> execute("cudnnBackendExecute");
Late<decltype(cudnnBackendFinalize)> finalize("cudnnBackendFinalize");
Late<decltype(cudnnBackendGetAttribute)> get_attribute("cudnnBackendGetAttribute");
Late<decltype(cudnnBackendSetAttribute)> set_attribute("cudnnBackendSetAttribute");
Late<decltype(cudnnCreate)> create("cudnnCreate");
Late<decltype(cudnnGetErrorString)> get_error_string("cudnnGetErrorString");
Late<decltype(cudnnGetLastErrorString)> get_last_error_string("cudnnGetLastErrorString");
Late<decltype(cudnnGetVersion)> get_version("cudnnGetVersion");
Late<decltype(cudnnSetStream)> set_stream("cudnnSetStream");

}  // namespace

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  return create_descriptor(type, made);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return destroy_descriptor(descriptor);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  return execute(handle, plan, pack);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return finalize(descriptor);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* found,
                                       void* values) {
  return get_attribute(descriptor, name, type, wanted, found, values);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return set_attribute(descriptor, name, type, count, values);
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return create(handle);
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return get_error_string(status);
}
void cudnnGetLastErrorString(char* message, size_t bytes) {
  get_last_error_string(message, bytes);
}
size_t cudnnGetVersion() {
  return get_version();
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return set_stream(handle, stream);
}
