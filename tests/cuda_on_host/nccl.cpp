// The double of NCCL: ranks meet in shared memory that the unique id names.
#include "nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "runtime/bf16.h"
#include "tests/cuda_on_host/device_memory.h"
#include "tests/cuda_on_host/runtime_error.h"
#include "tests/cuda_on_host/streams.h"

namespace cuda_on_host {
namespace {

constexpr std::size_t kPiece = 64 << 10;  // bytes that a rank shows the others at a time
constexpr std::chrono::seconds kPatience{60};

/// What a rank is about to sum.
struct Call {
  std::uint64_t count, type;
  std::uint64_t recorded;  // its number among the sums of graphs, from 1 on; 0: it is of none
  bool operator==(const Call&) const = default;
};
struct Slot {
  std::array<char, 16> bus;  // its device
  Call call;
  alignas(64) std::byte data[kPiece];
};
/// Starts as zeros.
struct Region {
  std::atomic<int> ranks, arrived;
  std::atomic<unsigned> round;
  std::atomic<bool> aborted;
  Slot slots[1];  // of each rank
};

thread_local std::string t_text;  // of the last error
template <class... A>
ncclResult_t refuse(ncclResult_t code, fmt::format_string<A...> format, A&&... args) {
  t_text = fmt::format(format, std::forward<A>(args)...);
  return code;
}

}  // namespace
}  // namespace cuda_on_host

struct ncclComm {
  int ranks, rank, device;
  std::size_t bytes;
  cuda_on_host::Region* region;
  std::atomic<int> pending = 0;
  std::atomic<ncclResult_t> error = ncclSuccess;
  std::uint64_t recorded = 0;                           // sums
  std::shared_ptr<int> held = std::make_shared<int>();  // by what was recorded of it too
};

namespace cuda_on_host {
namespace {

struct Communicators {
  std::mutex mutex;
  std::set<ncclComm_t> live;
};
Communicators& communicators() {
  static Communicators& c = *new Communicators;
  return c;
}
bool is_live(ncclComm_t comm) {
  std::lock_guard lock(communicators().mutex);
  return communicators().live.contains(comm);
}
void look_for_leaks() {
  if (communicators().live.empty()) return;
  std::fprintf(stderr, "cuda_on_host: %zu NCCL communicators were not destroyed\n",
               communicators().live.size());
  std::_Exit(1);
}

/// Until all ranks are here.
ncclResult_t meet(const ncclComm& comm) {
  Region& region = *comm.region;
  const unsigned round = region.round;
  if (++region.arrived == comm.ranks) {
    region.arrived = 0;
    ++region.round;
    return ncclSuccess;
  }
  const auto start = std::chrono::steady_clock::now();
  for (int looks = 0; region.round == round; ++looks) {
    if (region.aborted) return refuse(ncclRemoteError, "a rank has aborted the communicator");
    if (std::chrono::steady_clock::now() - start > kPatience)
      return refuse(ncclSystemError, "some ranks did not come");
    if (looks < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return ncclSuccess;
}

ncclResult_t open_region(ncclComm& comm, const std::string& name) {
  comm.bytes = sizeof(Region) + sizeof(Slot) * static_cast<std::size_t>(comm.ranks);
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) return refuse(ncclSystemError, "shared memory {} cannot be made", name);
  const bool sized = ftruncate(file, static_cast<off_t>(comm.bytes)) == 0;
  void* p = sized ? mmap(nullptr, comm.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (p == MAP_FAILED) return refuse(ncclSystemError, "no shared memory for {} bytes", comm.bytes);
  comm.region = static_cast<Region*>(p);
  int unknown = 0;
  if (!comm.region->ranks.compare_exchange_strong(unknown, comm.ranks) && unknown != comm.ranks)
    return refuse(ncclInvalidArgument, "this rank says {} ranks, another {}", comm.ranks, unknown);
  return ncclSuccess;
}

/// Collective.
ncclResult_t join(ncclComm& comm, const std::string& name) {
  if (const ncclResult_t e = open_region(comm, name); e != ncclSuccess) return e;
  auto& mine = comm.region->slots[comm.rank].bus;
  if (cudaDeviceGetPCIBusId(mine.data(), static_cast<int>(mine.size()), comm.device) != cudaSuccess)
    return refuse(ncclUnhandledCudaError, "no device");
  if (const ncclResult_t e = meet(comm); e != ncclSuccess) return e;
  shm_unlink(name.c_str());
  for (int a = 0; a < comm.ranks; ++a) {
    for (int b = 0; b < a; ++b) {
      if (comm.region->slots[a].bus == comm.region->slots[b].bus)
        return refuse(ncclInvalidUsage, "Duplicate GPU detected: ranks {} and {} both on CUDA device {}", b,
                      a, comm.region->slots[a].bus.data());
    }
  }
  return meet(comm);  // all have read before a slot is used again
}

std::size_t size_of(ncclDataType_t type) {
  return type == ncclBfloat16 ? 2 : type == ncclFloat32 ? 4 : 8;
}

/// From the last rank to the first: an order that nothing else here has. Each addition is rounded to T.
template <class T>
void add_slots(const ncclComm& comm, std::size_t bytes, void* to) {
  const auto at = [&](int rank) { return reinterpret_cast<const T*>(comm.region->slots[rank].data); };
  for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
    T sum = at(comm.ranks - 1)[i];
    for (int r = comm.ranks - 2; r >= 0; --r) sum = T(sum + at(r)[i]);
    static_cast<T*>(to)[i] = sum;
  }
}

ncclResult_t check_calls(const ncclComm& comm) {
  const Call mine = comm.region->slots[comm.rank].call;
  for (int r = 0; r < comm.ranks; ++r) {
    const Call theirs = comm.region->slots[r].call;
    if (theirs == mine) continue;
    if (theirs.recorded != mine.recorded)
      return refuse(
          ncclInvalidUsage,
          "rank {} makes sum {} of graphs, rank {} {} (0: of none): what one rank records or repeats "
          "all must",
          comm.rank, mine.recorded, r, theirs.recorded);
    return refuse(ncclInvalidArgument, "rank {} sums {} elements of type {}, rank {} sums {} of type {}",
                  comm.rank, mine.count, mine.type, r, theirs.count, theirs.type);
  }
  return ncclSuccess;
}

ncclResult_t all_reduce(const ncclComm& comm, const std::byte* from, std::byte* to, std::size_t count,
                        ncclDataType_t type, std::uint64_t recorded) {
  const std::size_t bytes = count * size_of(type);
  if (device_of(from, bytes) != comm.device || device_of(to, bytes) != comm.device)
    return refuse(ncclInvalidArgument, "the memory was freed before the sum was done");
  Slot& mine = comm.region->slots[comm.rank];
  mine.call = {count, static_cast<std::uint64_t>(type), recorded};
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - at);
    std::memcpy(mine.data, from + at, n);
    if (const ncclResult_t e = meet(comm); e != ncclSuccess) return e;
    if (const ncclResult_t e = check_calls(comm); e != ncclSuccess) return e;
    if (type == ncclFloat32)
      add_slots<float>(comm, n, to + at);
    else if (type == ncclFloat64)
      add_slots<double>(comm, n, to + at);
    else
      add_slots<ssn::bf16>(comm, n, to + at);
    if (const ncclResult_t e = meet(comm); e != ncclSuccess) return e;
  }
  return ncclSuccess;
}

ncclResult_t check_arguments(const void* from, const void* to, std::size_t bytes, const ncclComm& comm) {
  for (const void* p : {from, to}) {
    if (const int where = device_of(p, bytes); where != comm.device) {
      return refuse(ncclInvalidArgument,
                    "{} bytes at {} are not in memory of the communicator's device {}: {}", bytes, p,
                    comm.device, where < 0 ? "not of any" : fmt::format("of device {}", where));
    }
  }
  const auto *f = static_cast<const char*>(from), *t = static_cast<const char*>(to);
  if (f != t && t < f + bytes && f < t + bytes)
    return refuse(ncclInvalidArgument, "the sums overlap what is summed");
  return ncclSuccess;
}

bool in_graphs(const ncclComm& comm) {
  return comm.held.use_count() > 1;
}

ncclResult_t leave(ncclComm_t comm) {
  {
    std::lock_guard lock(communicators().mutex);
    communicators().live.erase(comm);
  }
  munmap(comm->region, comm->bytes);
  delete comm;
  return ncclSuccess;
}

}  // namespace
}  // namespace cuda_on_host

using namespace cuda_on_host;

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) {
  return t_text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  const std::string name = fmt::format("/cuda-on-host-{:08x}{:08x}{:08x}", random(), random(), random());
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, name.c_str(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
  if (!name.starts_with("/cuda-on-host-")) return refuse(ncclInvalidArgument, "the id is not a unique id");
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return refuse(ncclInvalidArgument, "rank {} of {} ranks", rank, ranks);
  auto made = std::make_unique<ncclComm>(ranks, rank, current_device(), std::size_t{0}, nullptr);
  const ncclResult_t e = join(*made, name);
  if (e != ncclSuccess) {
    if (made->region) munmap(made->region, made->bytes);
    return e;
  }
  std::lock_guard lock(communicators().mutex);
  static const int at_exit = std::atexit(look_for_leaks);
  if (at_exit != 0) return refuse(ncclSystemError, "leaks at exit would go unseen");
  communicators().live.insert(*comm = made.release());
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  if (comm->pending > 0)
    return refuse(ncclInvalidUsage, "{} sums are not done: wait for their stream first",
                  comm->pending.load());
  if (in_graphs(*comm))
    return refuse(ncclInvalidUsage, "graphs hold sums of it: NCCL would wait for their end");
  return leave(comm);
}
/// Like NCCL's it comes back once no graph holds sums.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  comm->region->aborted = true;
  for (const auto start = std::chrono::steady_clock::now(); in_graphs(*comm);) {
    if (std::chrono::steady_clock::now() - start > kPatience)
      return refuse(ncclSystemError, "graphs hold sums of it for ever");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return leave(comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  *error = comm->error;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (!is_live(comm)) return refuse(ncclInvalidArgument, "no such communicator");
  if ((type != ncclFloat32 && type != ncclFloat64 && type != ncclBfloat16) || op != ncclSum)
    return refuse(ncclInvalidArgument, "type {} and operation {} are not known here", static_cast<int>(type),
                  static_cast<int>(op));
  if (count == 0) return ncclSuccess;
  const std::size_t bytes = count * cuda_on_host::size_of(type);
  if (const ncclResult_t e = check_arguments(from, to, bytes, *comm); e != ncclSuccess) return e;
  if (comm->device != current_device())
    return refuse(ncclInvalidUsage, "the communicator is of device {}, the current one is {}", comm->device,
                  current_device());
  const std::uint64_t recorded = is_captured(stream) ? ++comm->recorded : 0;
  const bool counts = recorded == 0;  // what is recorded is not under way
  if (counts) ++comm->pending;
  const cudaError_t queued = enqueue(stream, [=, held = counts ? nullptr : comm->held] {
    if (!is_live(comm)) return error(cudaErrorLaunchFailure, "ncclAllReduce: its communicator is gone");
    const ncclResult_t e = all_reduce(*comm, static_cast<const std::byte*>(from), static_cast<std::byte*>(to),
                                      count, type, recorded);
    if (counts) --comm->pending;
    if (e == ncclSuccess) return cudaSuccess;
    comm->error = e;
    return error(cudaErrorLaunchFailure, "ncclAllReduce: {}", t_text);
  });
  if (queued == cudaSuccess) return ncclSuccess;
  const ncclResult_t e = comm->error;
  if (e == ncclSuccess) {  // not queued at all
    if (counts) --comm->pending;
    return refuse(ncclInvalidArgument, "{}", cudaGetErrorString(queued));
  }
  return e;
}
