#include <mpi.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <thread>

#include "runtime/comm.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/trace.h"
#include "runtime/worker.h"

namespace ssn {
namespace {

/// Every MPI call goes through here; communicators and windows return their errors.
void check_mpi(int code, Where where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(where, "MPI failed: {}", std::string_view(text, static_cast<std::size_t>(length)));
}

/// Broadcasts and reductions go in pieces, so that counts fit an int and the library's buffers stay small:
/// 256 KiB reach the full speed of a network where whole gradients reach half of it.
constexpr std::size_t kPieceBytes = 256 << 10;

/// What a rank is about to sum, in front of its part of a window: ranks that do not agree are found out.
struct Announcement {
  std::int64_t offset, count, dtype;
  bool operator==(const Announcement&) const = default;
};

/// Memory of all ranks of a node that each of them sees. A rank's part is an Announcement and, 256 bytes on,
/// its data.
struct Window {
  MPI_Win win = MPI_WIN_NULL;
  std::size_t bytes = 0;          // of the data
  std::vector<std::byte*> parts;  // every rank's part, in this rank's addresses
  bool released = false;          // by the last storage on this rank

  static constexpr std::size_t kHeader = 256;
  Announcement& announcement(int rank) { return *reinterpret_cast<Announcement*>(parts[rank]); }
  std::byte* data(int rank) { return parts[rank] + kHeader; }
};

/// Open MPI keeps windows in /dev/shm, of which containers have little. Asked for more than there is, it
/// fails on one rank and leaves the others waiting.
bool fits_shared_memory(std::size_t bytes) {
  struct statvfs fs = {};
  return statvfs("/dev/shm", &fs) != 0 || fs.f_bavail * fs.f_frsize >= bytes;
}

/// Replaces elements [begin, end) of all buffers, two at least, by their sum in the order of the buffers.
template <class T>
void sum_slice(const std::vector<T*>& buffers, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kBlock = 4096 / sizeof(T);  // stays in the first cache until all have it
  const std::size_t last = buffers.size() - 1;
  parallel_for(end - begin, 16 * kBlock, [&](std::int64_t first, std::int64_t stop) {
    for (std::int64_t at = begin + first; at < begin + stop; at += kBlock) {
      const std::int64_t n = std::min(kBlock, begin + stop - at);
      T* __restrict total = buffers[0] + at;
      for (std::size_t r = 1; r < last; ++r) {
        const T* __restrict x = buffers[r] + at;
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i) total[i] += x[i];
      }
      T* __restrict x = buffers[last] + at;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) x[i] = total[i] = total[i] + x[i];
      for (std::size_t r = 1; r < last; ++r) std::copy_n(total, n, buffers[r] + at);
    }
  });
}

class MpiComm : public Comm {
 public:
  explicit MpiComm(SumPath path) {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "start MPI");
    check(provided >= MPI_THREAD_SERIALIZED, "start MPI",
          "this MPI has no thread support (MPI_THREAD_SERIALIZED)");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "start MPI");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "start MPI");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &sum_comm_), "start MPI");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &end_comm_), "start MPI");
    check_mpi(MPI_Comm_rank(comm_, &rank_), "start MPI");
    check_mpi(MPI_Comm_size(comm_, &size_), "start MPI");
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node), "start MPI");
    check_mpi(MPI_Comm_size(node, &local_size_), "start MPI");
    check_mpi(MPI_Comm_free(&node), "start MPI");
    const bool one_node = or_flags(local_size_ != size_) == 0;
    check_usage(path != SumPath::window || one_node, "start MPI",
                "SSN_SUM=window needs all {} ranks on one node: use SSN_SUM=allreduce or leave it unset",
                size_);
    uses_window_ = one_node && size_ > 1 && path != SumPath::allreduce;
    if (size_ > 1 && or_flags(provided < MPI_THREAD_MULTIPLE) == 0) worker_.emplace();
  }

  /// Collective. Left by an exception, this rank ends the others: they could not follow.
  ~MpiComm() override {
    if (std::uncaught_exceptions() > 0) abort("left by an error", 1);
    worker_.reset();
    for (auto& w : windows_) {
      if (w->win != MPI_WIN_NULL) free_window(*w);
    }
    MPI_Comm_free(&comm_);
    MPI_Comm_free(&sum_comm_);
    MPI_Comm_free(&end_comm_);
    MPI_Finalize();
  }

  std::string text() const override {
    if (size_ == 1) return "1 rank";
    if (local_size_ < size_)
      return fmt::format("{} ranks, {} on this node, summed by MPI", size_, local_size_);
    return fmt::format("{} ranks on 1 node, summed {}", size_, uses_window_ ? "in shared memory" : "by MPI");
  }

  Storage allocate(std::size_t bytes) override {
    if (!uses_window_) return Storage::allocate(Device::cpu, bytes);
    free_released_windows();
    if (or_flags(!fits_shared_memory((bytes + 8192) * static_cast<std::size_t>(size_))) != 0) {
      if (rank_ == 0) warn("/dev/shm has no room for {} x {} bytes: MPI sums them, slower", size_, bytes);
      return Storage::allocate(Device::cpu, bytes);
    }
    auto window = std::make_shared<Window>();
    window->bytes = bytes;
    open_window(*window);
    windows_.push_back(window);
    return Storage::adopt(Device::cpu, window->data(rank_), bytes, [window] { window->released = true; });
  }

  void barrier() override { check_mpi(MPI_Barrier(comm_), "barrier"); }
  void idle_barrier() override { sleep_until_all_are_here(comm_, -1, "barrier"); }

  [[noreturn]] void abort(std::string_view message, int exit_code) override {
    write_stderr(fmt::format("error on rank {}: {}\n", rank_, message));
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

  std::optional<std::vector<std::string>> meet(std::string_view text, double seconds) override {
    if (!sleep_until_all_are_here(end_comm_, seconds, "end of the run")) return std::nullopt;
    constexpr std::size_t kText = 4000;
    std::vector<char> mine(kText + 1, '\0'), all((kText + 1) * static_cast<std::size_t>(size_));
    std::copy_n(text.begin(), std::min(text.size(), kText), mine.begin());
    check_mpi(MPI_Allgather(mine.data(), kText + 1, MPI_CHAR, all.data(), kText + 1, MPI_CHAR, end_comm_),
              "end of the run");
    std::vector<std::string> texts;
    for (int r = 0; r < size_; ++r)
      texts.emplace_back(all.data() + static_cast<std::size_t>(r) * (kText + 1));
    return texts;
  }

 protected:
  /// In a window the sum has finished on return: on one node, where summing is the processor's work, nothing
  /// is won by doing it beside the backward pass. MPI's is done by a thread that mostly waits for the
  /// network.
  void sum(std::int64_t, void* data, std::int64_t count, DType dtype) override {
    if (size_ == 1) return;
    auto* bytes = static_cast<std::byte*>(data);
    if (Window* window = window_of(bytes)) {
      sum_in_window(*window, bytes - window->data(rank_), count, dtype);
    } else if (worker_) {
      worker_->add([=, this] { allreduce(bytes, count, dtype); });
    } else {
      allreduce(bytes, count, dtype);
    }
  }
  /// All, not only those up to the one asked for: whoever waits for one waits for the last.
  void finish(std::int64_t) override {
    if (worker_) worker_->wait();
  }

  void broadcast_bytes(std::byte* data, std::size_t bytes, int root) override {
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
      const int n = static_cast<int>(std::min(kPieceBytes, bytes - at));
      check_mpi(MPI_Bcast(data + at, n, MPI_BYTE, root, comm_), "broadcast");
    }
  }

  void gather_bytes(const std::byte* data, std::size_t bytes, std::byte* to, bool everywhere) override {
    check(bytes <= std::numeric_limits<int>::max(), "gather",
          "at most 2 GiB a rank can be gathered, found {} bytes", bytes);
    const int n = static_cast<int>(bytes);
    if (everywhere)
      check_mpi(MPI_Allgather(data, n, MPI_BYTE, to, n, MPI_BYTE, comm_), "gather");
    else
      check_mpi(MPI_Gather(data, n, MPI_BYTE, to, n, MPI_BYTE, 0, comm_), "gather");
  }

  std::uint32_t or_flags(std::uint32_t flags) override {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &flags, 1, MPI_UINT32_T, MPI_BOR, comm_), "agree");
    return flags;
  }

 private:
  void allreduce(std::byte* data, std::int64_t count, DType dtype) {
    const Span span("allreduce", count * static_cast<std::int64_t>(size_of(dtype)));
    const MPI_Datatype type = dtype == DType::f32 ? MPI_FLOAT : MPI_DOUBLE;
    const std::int64_t piece = kPieceBytes / size_of(dtype);
    for (std::int64_t at = 0; at < count; at += piece) {
      const int n = static_cast<int>(std::min(piece, count - at));
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, data + at * size_of(dtype), n, type, MPI_SUM, sum_comm_),
                "sum over ranks");
    }
  }

  /// False if some rank has not come within `seconds` (negative: wait for ever). MPI's own barriers spin.
  static bool sleep_until_all_are_here(MPI_Comm comm, double seconds, Where where) {
    using Clock = std::chrono::steady_clock;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm, &request), where);
    const auto start = Clock::now();
    for (int all_here = 0; !all_here;) {
      check_mpi(MPI_Test(&request, &all_here, MPI_STATUS_IGNORE), where);
      const double waited = std::chrono::duration<double>(Clock::now() - start).count();
      if (!all_here && seconds >= 0 && waited > seconds) return false;
      if (!all_here) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  void open_window(Window& window) {
    constexpr std::size_t kAlign = 256;
    MPI_Info info = MPI_INFO_NULL;
    check_mpi(MPI_Info_create(&info), "allocate");
    check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"),
              "allocate");  // every part starts at a page
    void* mine = nullptr;
    const auto bytes = static_cast<MPI_Aint>(Window::kHeader + window.bytes + kAlign);
    check_mpi(MPI_Win_allocate_shared(bytes, 1, info, comm_, static_cast<void*>(&mine), &window.win),
              "allocate");
    check_mpi(MPI_Info_free(&info), "allocate");
    check_mpi(MPI_Win_set_errhandler(window.win, MPI_ERRORS_RETURN), "allocate");
    for (int r = 0; r < size_; ++r) {
      MPI_Aint size = 0;
      int unit = 0;
      void* part = nullptr;
      check_mpi(MPI_Win_shared_query(window.win, r, &size, &unit, static_cast<void*>(&part)), "allocate");
      // Pages are mapped whole, so the remainder is the same in every rank's addresses.
      const std::size_t past = reinterpret_cast<std::uintptr_t>(part) % kAlign;
      window.parts.push_back(static_cast<std::byte*>(part) + (past ? kAlign - past : 0));
    }
    check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window.win), "allocate");
  }

  static void free_window(Window& window) {
    MPI_Win_unlock_all(window.win);
    MPI_Win_free(&window.win);
  }

  /// Freeing is collective, dropping a storage is not: windows that every rank has dropped are freed here.
  void free_released_windows() {
    if (windows_.empty()) return;
    std::vector<int> released;
    for (const auto& w : windows_) released.push_back(w->released);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, released.data(), static_cast<int>(released.size()), MPI_INT,
                            MPI_MIN, comm_),
              "allocate");
    std::vector<std::shared_ptr<Window>> kept;
    for (std::size_t i = 0; i < windows_.size(); ++i) {
      if (released[i])
        free_window(*windows_[i]);
      else
        kept.push_back(windows_[i]);
    }
    windows_ = std::move(kept);
  }

  Window* window_of(const std::byte* data) {
    for (const auto& w : windows_) {
      if (data >= w->data(rank_) && data < w->data(rank_) + w->bytes) return w.get();
    }
    return nullptr;
  }

  /// All ranks' stores before it are seen by all ranks' loads after it.
  void fence(Window& window) {
    check_mpi(MPI_Win_sync(window.win), "sum over ranks");
    barrier();
    check_mpi(MPI_Win_sync(window.win), "sum over ranks");
  }

  void sum_in_window(Window& window, std::int64_t offset, std::int64_t count, DType dtype) {
    const Announcement mine{offset, count, static_cast<std::int64_t>(dtype)};
    window.announcement(rank_) = mine;
    fence(window);
    if (const int other = first_other(window, mine); other >= 0) {
      const Announcement theirs = window.announcement(other);
      fence(window);  // all have read: each finds a rank unlike itself
      fail("sum over ranks", "rank {} sums {} elements at byte {}, rank {} sums {} at byte {}", rank_, count,
           offset, other, theirs.count, theirs.offset);
    }
    constexpr std::int64_t kUnit = 64;  // slices start at cache lines, for either type
    const std::int64_t units = (count + kUnit - 1) / kUnit;
    const std::int64_t begin = units * rank_ / size_ * kUnit;
    const std::int64_t end = std::min(units * (rank_ + 1) / size_ * kUnit, count);
    if (dtype == DType::f32)
      sum_slice(buffers<float>(window, offset), begin, end);
    else
      sum_slice(buffers<double>(window, offset), begin, end);
    fence(window);
  }

  /// The first rank that announced something else, −1 if none did.
  int first_other(Window& window, const Announcement& mine) {
    for (int r = 0; r < size_; ++r) {
      if (window.announcement(r) != mine) return r;
    }
    return -1;
  }

  template <class T>
  std::vector<T*> buffers(Window& window, std::int64_t offset) {
    std::vector<T*> all;
    for (int r = 0; r < size_; ++r) all.push_back(reinterpret_cast<T*>(window.data(r) + offset));
    return all;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm sum_comm_ = MPI_COMM_NULL;  // the worker's own: its calls come at any time
  /// For the last meeting, so that it cannot mix with what a failed rank left open.
  MPI_Comm end_comm_ = MPI_COMM_NULL;
  bool uses_window_ = false;
  std::vector<std::shared_ptr<Window>> windows_;
  std::optional<Worker> worker_;  // sums; none where MPI does not take calls from several threads
};

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

SumPath path_from_environment() {
  const std::string_view value = environment("SSN_SUM") ? environment("SSN_SUM") : "";
  check_usage(value.empty() || value == "window" || value == "allreduce", "start MPI",
              "SSN_SUM must be window or allreduce, found '{}'", value);
  return value == "window" ? SumPath::window : value == "allreduce" ? SumPath::allreduce : SumPath::automatic;
}

/// As Open MPI's launcher says.
bool on_several_nodes() {
  const char *all = environment("OMPI_COMM_WORLD_SIZE"), *here = environment("OMPI_COMM_WORLD_LOCAL_SIZE");
  return all && here && std::string_view(all) != here;
}

/// The thread that sums must leave the processor to those that compute while it waits for the network: asks
/// Open MPI for that, unless the user has said otherwise.
void yield_while_waiting() {
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

/// Whether a launcher started this process as one of an MPI job: Open MPI's, or any that speaks PMIx or PMI.
bool launched_as_rank() {
  constexpr std::array kNames = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};
  return std::any_of(kNames.begin(), kNames.end(), environment);
}

/// srun without MPI support starts its tasks as runs of their own, each "rank 0 of 1".
void warn_of_singletons() {
  const char* tasks = environment("SLURM_STEP_NUM_TASKS");
  if (!tasks || std::atoi(tasks) <= 1 || environment("OMPI_COMM_WORLD_SIZE")) return;
  const char* task = environment("SLURM_PROCID");
  if (task && std::string_view(task) != "0") return;
  warn("srun started {} tasks, but each is a run of its own: use mpirun, or srun --mpi=pmix", tasks);
}

}  // namespace

std::unique_ptr<Comm> make_comm(SumPath path) {
  if (path == SumPath::automatic) path = path_from_environment();
  std::unique_ptr<Comm> comm;
  if (path == SumPath::allreduce || on_several_nodes()) yield_while_waiting();
  if (launched_as_rank())
    comm = std::make_unique<MpiComm>(path);
  else
    comm = std::make_unique<SoloComm>();
  if (comm->size() == 1) warn_of_singletons();
  return comm;
}

}  // namespace ssn
