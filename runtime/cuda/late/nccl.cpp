#include <nccl.h>

#include "runtime/cuda/late/libraries.h"

namespace ssn {

LateLibrary& nccl() {
  static LateLibrary& made = *new LateLibrary("NCCL", {"libnccl.so.2"});
  return made;
}

}  // namespace ssn

namespace {

template <class F>
struct Late : ssn::LateFunction<F> {
  explicit Late(const char* name) : ssn::LateFunction<F>(ssn::nccl(), name) {}
};

Late<decltype(ncclAllReduce)> all_reduce("ncclAllReduce");
Late<decltype(ncclCommAbort)> comm_abort("ncclCommAbort");
Late<decltype(ncclCommDestroy)> comm_destroy("ncclCommDestroy");
Late<decltype(ncclCommGetAsyncError)> comm_get_async_error("ncclCommGetAsyncError");
Late<decltype(ncclCommInitRank)> comm_init_rank("ncclCommInitRank");
Late<decltype(ncclGetErrorString)> get_error_string("ncclGetErrorString");
Late<decltype(ncclGetLastError)> get_last_error("ncclGetLastError");
Late<decltype(ncclGetUniqueId)> get_unique_id("ncclGetUniqueId");

}  // namespace

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return all_reduce(from, to, count, type, operation, comm, stream);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return comm_abort(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return comm_destroy(comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return comm_get_async_error(comm, error);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return comm_init_rank(comm, ranks, id, rank);
}
const char* ncclGetErrorString(ncclResult_t result) {
  return get_error_string(result);
}
const char* ncclGetLastError(ncclComm_t comm) {
  return get_last_error(comm);
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return get_unique_id(id);
}
