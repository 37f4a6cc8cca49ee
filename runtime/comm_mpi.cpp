#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "runtime/comm.h"
#include "runtime/device_sum.h"
#include "runtime/launcher.h"
#include "runtime/liveness.h"
#include "runtime/log.h"
#include "runtime/mpi_check.h"
#include "runtime/trace.h"
#include "runtime/watchdog.h"
#include "runtime/window.h"
#include "runtime/wire.h"
#include "runtime/worker.h"

namespace ssn {
namespace {

/// A communicator is used by one thread only: those of the sums by MPI by the worker, the others by the
/// caller.
class MpiComm : public Comm {
  using Operation = Watchdog::Operation;

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
    find_nodes();
    nccl_ = build::has_nccl && path == SumPath::automatic;
    path_ = choose(path);
    if (size_ > 1 && or_flags(provided < MPI_THREAD_MULTIPLE) == 0) worker_.emplace("communication");
    if (path_ == SumPath::hierarchical) join_peers();
    sums_as_tree_ = path_ != SumPath::hierarchical || nodes_are_subtrees();
    all_sum_.emplace(sum_comm_, worker());
    if (worker_)
      watchdog_.emplace();
    else if (size_ > 1 && rank_ == 0)
      warn("this MPI takes calls from one thread only: a rank that hangs will not be found");
  }

  /// Collective. Left by an exception, this rank ends the others: they could not follow.
  ~MpiComm() override {
    if (std::uncaught_exceptions() > 0) abort("left by an error", 1);
    device_sum_.reset();
    watchdog_.reset();
    worker_.reset();
    windows_.clear();
    for (MPI_Comm* comm : {&comm_, &node_comm_, &sum_comm_, &peer_comm_, &end_comm_}) {
      if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
    }
    MPI_Finalize();
  }

  std::string text() const override {
    if (size_ == 1) return "1 rank";
    const char* how = path_ == SumPath::window      ? "in shared memory"
                      : path_ == SumPath::allreduce ? "by MPI"
                                                    : "in shared memory and by MPI between nodes";
    return fmt::format("{} ranks on {} node{}, summed {}{}", size_, nodes_, nodes_ == 1 ? "" : "s", how,
                       wire_ == DType::bf16 ? ", as bf16" : "");
  }

  Storage allocate(std::size_t bytes) override {
    if (size_ == 1 || path_ == SumPath::allreduce) return Storage::allocate(Device::cpu, bytes);
    const Operation operation(watch(), "allocate");
    free_released_windows();
    if (or_flags(!Window::fits((bytes + 8192) * static_cast<std::size_t>(local_size_))) != 0) {
      if (rank_ == 0)
        warn("/dev/shm has no room for {} x {} bytes: MPI sums them, slower", local_size_, bytes);
      return Storage::allocate(Device::cpu, bytes);
    }
    windows_.push_back({std::make_unique<Window>(node_comm_, bytes), std::make_shared<bool>(false)});
    const auto& [window, released] = windows_.back();
    return Storage::adopt(Device::cpu, window->data(), bytes, [flag = released] { *flag = true; });
  }

  bool sums_on(Device device) const override { return size_ == 1 || device == Device::cpu || nccl_; }
  bool sums_beside(Device device) const override {
    if (device == Device::cuda) return size_ > 1 && nccl_;
    return size_ > 1 && path_ != SumPath::window && worker_;
  }

  void join_sums() override {
    if (device_sum_) device_sum_->join();
  }

  bool set_wire(DType wire) override {
    check(wire == DType::f32 || wire == DType::bf16, "set_wire", "needs f32 or bf16, found {}",
          name_of(wire));
    const bool half = wire == DType::bf16;
    check_usage(or_flags(half ? 1 : 2) != 3, "set_wire",
                "some ranks want bf16 to travel, some f32: give all the same");
    if (size_ == 1 || path_ == SumPath::window) return false;
    wire_ = wire;
    return true;
  }

  void barrier() override {
    const Operation operation(watch(), "barrier");
    check_mpi(MPI_Barrier(comm_), "barrier");
  }
  void idle_barrier() override {
    const Operation operation(watch(), "barrier");
    sleep_until_all_are_here(comm_, -1, "barrier");
  }

  void set_timeout(double seconds) override {
    if (watchdog_) watchdog_->set_timeout(seconds);
  }

  ClockOffset clock_offset() override {
    const Operation operation(watch(), "clock");
    constexpr int kMessages = 20;
    ClockOffset best;
    for (int other = 1; other < size_; ++other) {
      for (int i = 0; i < kMessages; ++i) {
        if (rank_ == 0) answer_with_clock(other);
        if (rank_ != other) continue;
        const ClockOffset found = ask_for_clock();
        if (i == 0 || found.error < best.error) best = found;
      }
    }
    barrier();
    return best;
  }

  [[noreturn]] void abort(std::string_view message, int exit_code) override {
    write_stderr(fmt::format("error on rank {}: {}\n", rank_, message));
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

  std::optional<std::vector<std::string>> meet(std::string_view text, double seconds) override {
    const Operation operation(seconds < 0 ? watch() : nullptr, "end of the run");
    std::optional<Busy> ending;  // it ends the others itself
    if (seconds >= 0) ending.emplace("ends with an error");
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
  /// What is summed in shared memory has been when this returns: it is the processor's work, and nothing is
  /// won by doing it beside the backward pass. MPI's part is done by a thread that mostly waits for the
  /// network.
  void sum(std::int64_t, void* data, std::int64_t count, DType dtype, Device device) override {
    if (size_ == 1) return;
    const Operation operation(watch(), "sum over ranks");
    if (device == Device::cuda) return sum_on_device(data, count, dtype);
    auto* bytes = static_cast<std::byte*>(data);
    Window* window = window_of(bytes);
    if (window && path_ == SumPath::window)
      window->sum(bytes - window->data(), count, dtype);
    else if (window)
      sum_in_levels(*window, bytes - window->data(), count, dtype);
    else
      sum_over_all(bytes, count, dtype);
  }
  /// All, not only those up to the one asked for: whoever waits for one waits for the last.
  void finish(std::int64_t) override {
    const Operation operation(watch(), "sum over ranks");
    if (current_) current_->wait();
    current_ = nullptr;
    if (unfinished_) unfinished_->fence();
    unfinished_ = nullptr;
    if (device_sum_) device_sum_->wait();
  }

  void broadcast_bytes(std::byte* data, std::size_t bytes, int root) override {
    const Operation operation(watch(), "broadcast");
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
      const int n = static_cast<int>(std::min(kPieceBytes, bytes - at));
      check_mpi(MPI_Bcast(data + at, n, MPI_BYTE, root, comm_), "broadcast");
    }
  }

  void gather_bytes(const std::byte* data, std::size_t bytes, std::byte* to, bool everywhere) override {
    check(bytes <= std::numeric_limits<int>::max(), "gather",
          "at most 2 GiB a rank can be gathered, found {} bytes", bytes);
    const Operation operation(watch(), "gather");
    const int n = static_cast<int>(bytes);
    if (everywhere)
      check_mpi(MPI_Allgather(data, n, MPI_BYTE, to, n, MPI_BYTE, comm_), "gather");
    else
      check_mpi(MPI_Gather(data, n, MPI_BYTE, to, n, MPI_BYTE, 0, comm_), "gather");
  }

  std::uint32_t or_flags(std::uint32_t flags) override {
    const Operation operation(watch(), "agree");
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &flags, 1, MPI_UINT32_T, MPI_BOR, comm_), "agree");
    return flags;
  }

 private:
  static constexpr int kClockTag = 1;

  void answer_with_clock(int rank) {
    std::int64_t clock = 0;
    check_mpi(MPI_Recv(&clock, 1, MPI_INT64_T, rank, kClockTag, comm_, MPI_STATUS_IGNORE), "clock");
    clock = detail::trace_clock();
    check_mpi(MPI_Send(&clock, 1, MPI_INT64_T, rank, kClockTag, comm_), "clock");
  }
  /// Rank 0 read its clock at some time between asking and answer.
  ClockOffset ask_for_clock() {
    const std::int64_t asked = detail::trace_clock();
    std::int64_t clock = asked;
    check_mpi(MPI_Send(&clock, 1, MPI_INT64_T, 0, kClockTag, comm_), "clock");
    check_mpi(MPI_Recv(&clock, 1, MPI_INT64_T, 0, kClockTag, comm_, MPI_STATUS_IGNORE), "clock");
    const std::int64_t half = (detail::trace_clock() - asked) / 2;
    return {clock - (asked + half), half};
  }

  /// A window, and whether this rank's storage is dropped.
  struct SharedStorage {
    std::unique_ptr<Window> window;
    std::shared_ptr<bool> released;
  };

  void find_nodes() {
    check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_comm_),
              "start MPI");
    check_mpi(MPI_Comm_size(node_comm_, &local_size_), "start MPI");
    check_mpi(MPI_Comm_rank(node_comm_, &node_rank_), "start MPI");
    local_rank_ = node_rank_;
    machine_ = rank_;
    check_mpi(MPI_Bcast(&machine_, 1, MPI_INT, 0, node_comm_), "start MPI");
    if (const int each = ranks_per_node(); each > 0) {
      MPI_Comm machine = std::exchange(node_comm_, MPI_COMM_NULL);
      check_mpi(MPI_Comm_split(machine, node_rank_ / each, rank_, &node_comm_), "start MPI");
      check_mpi(MPI_Comm_rank(node_comm_, &node_rank_), "start MPI");
      check_mpi(MPI_Comm_free(&machine), "start MPI");
    }
    nodes_ = node_rank_ == 0;
    check_mpi(MPI_Comm_size(node_comm_, &owners_), "start MPI");
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &nodes_, 1, MPI_INT, MPI_SUM, comm_), "start MPI");
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &owners_, 1, MPI_INT, MPI_MIN, comm_), "start MPI");
  }

  SumPath choose(SumPath wanted) const {
    check_usage(wanted != SumPath::window || nodes_ == 1, "start MPI",
                "SSN_SUM=window needs all {} ranks on one node, found {}: leave it unset", size_, nodes_);
    const bool levels = nodes_ > 1 && nodes_ < size_;
    check_usage(wanted != SumPath::hierarchical || levels, "start MPI",
                "SSN_SUM=hierarchical needs several nodes with several ranks, found {} ranks on {}: leave it "
                "unset (SSN_RANKS_PER_NODE takes parts of a node for nodes)",
                size_, nodes_);
    if (wanted != SumPath::automatic) return wanted;
    return nodes_ == 1 ? SumPath::window : levels ? SumPath::hierarchical : SumPath::allreduce;
  }

  /// With the ranks that own the same slice on the other nodes.
  void join_peers() {
    const int slice = node_rank_ < owners_ ? node_rank_ : MPI_UNDEFINED;
    check_mpi(MPI_Comm_split(comm_, slice, rank_, &peer_comm_), "start MPI");
    if (peer_comm_ != MPI_COMM_NULL) peer_sum_.emplace(peer_comm_, worker());
  }

  Watchdog* watch() { return watchdog_ ? &*watchdog_ : nullptr; }

  /// Whether all nodes have the same power of two of ranks, one after another.
  bool nodes_are_subtrees() {
    int ranks = 0, first = rank_;
    check_mpi(MPI_Comm_size(node_comm_, &ranks), "start MPI");
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, node_comm_), "start MPI");
    const bool subtree = ranks == owners_ && std::has_single_bit(static_cast<unsigned>(ranks)) &&
                         first % ranks == 0 && first + node_rank_ == rank_;
    return or_flags(!subtree) == 0;
  }

  Worker* worker() { return worker_ ? &*worker_ : nullptr; }

  DType wire_of(DType dtype) const { return dtype == DType::f32 ? wire_ : dtype; }

  void sum_on_device(void* data, std::int64_t count, DType dtype) {
    if constexpr (build::has_nccl) {
      if (!device_sum_) device_sum_ = make_nccl_sum(*this);
      device_sum_->start(data, count, dtype, wire_of(dtype));
    }
  }

  void sum_over_all(std::byte* data, std::int64_t count, DType dtype) {
    turn_to(*all_sum_);
    all_sum_->start(data, count, dtype, wire_of(dtype), {});
  }

  /// The worker finishes what one of the two has, with what is added meanwhile, before it turns to the other:
  /// ranks that turned at different moments would wait for each other.
  void turn_to(WireSum& sum) {
    if (current_ && current_ != &sum) current_->wait();
    current_ = &sum;
  }

  /// The others of the node read their slices only, so this rank's travels at once; they have it after the
  /// next fence.
  void sum_in_levels(Window& window, std::int64_t offset, std::int64_t count, DType dtype) {
    const auto [begin, end] = window.sum_slice(offset, count, dtype, owners_);
    unfinished_ = &window;
    if (begin == end) return;
    turn_to(*peer_sum_);
    const std::int64_t first = offset + begin * static_cast<std::int64_t>(size_of(dtype));
    peer_sum_->start(
        window.data() + first, end - begin, dtype, wire_of(dtype),
        [&window, first](std::int64_t from, std::int64_t to) { window.spread(first + from, first + to); });
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

  /// Freeing is collective, dropping a storage is not: windows that every rank has dropped are freed here.
  void free_released_windows() {
    if (windows_.empty()) return;
    std::vector<int> released;
    for (const SharedStorage& s : windows_) released.push_back(*s.released);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, released.data(), static_cast<int>(released.size()), MPI_INT,
                            MPI_MIN, comm_),
              "allocate");
    for (std::size_t i = released.size(); i-- > 0;) {
      if (released[i]) windows_.erase(windows_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  Window* window_of(const std::byte* data) {
    for (const SharedStorage& s : windows_) {
      if (s.window->holds(data)) return s.window.get();
    }
    return nullptr;
  }

  MPI_Comm comm_ = MPI_COMM_NULL, node_comm_ = MPI_COMM_NULL;
  MPI_Comm sum_comm_ = MPI_COMM_NULL, peer_comm_ = MPI_COMM_NULL;  // the worker's: its calls come at any time
  /// For the last meeting, so that it cannot mix with what a failed rank left open.
  MPI_Comm end_comm_ = MPI_COMM_NULL;
  int nodes_ = 1, node_rank_ = 0;
  int owners_ = 1;  // ranks of each node that own a slice
  SumPath path_ = SumPath::window;
  bool nccl_ = false;  // sums in GPU memory
  std::vector<SharedStorage> windows_;
  Window* unfinished_ = nullptr;           // its ranks write to each other until they meet
  std::unique_ptr<DeviceSum> device_sum_;  // made with the first
  std::optional<WireSum> all_sum_, peer_sum_;
  WireSum* current_ = nullptr;        // of the two, the one that may have something on its way
  std::optional<Worker> worker_;      // none where MPI does not take calls from several threads
  std::optional<Watchdog> watchdog_;  // the same
};

}  // namespace

std::unique_ptr<Comm> make_comm(SumPath path) {
  if (path == SumPath::automatic) path = path_from_environment();
  if (path == SumPath::allreduce || path == SumPath::hierarchical || ranks_per_node() > 0 ||
      launched_on_several_nodes())
    yield_while_waiting();
  std::unique_ptr<Comm> comm;
  if (launched_as_rank())
    comm = std::make_unique<MpiComm>(path);
  else
    comm = std::make_unique<SoloComm>();
  if (comm->size() == 1 && launched_with_others()) {
    comm.reset();
    fail_usage(
        "start MPI",
        "several tasks were started, but they do not know of each other, and each would be a run of its own: "
        "use "
        "the mpirun of the MPI that this was built with, or srun --mpi=pmix. If single runs are meant, unset "
        "SLURM_STEP_NUM_TASKS for them");
  }
  return comm;
}

}  // namespace ssn
