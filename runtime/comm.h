#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/storage.h"
#include "runtime/tensor.h"

namespace ssn {

/// A sum that was started. `bytes` is the payload that this rank handed over, 0 on one rank.
struct SumHandle {
  std::int64_t id = 0;
  std::int64_t bytes = 0;
};

/// What a rank has handed over so far, a line a purpose; nothing is counted on one rank.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
};
struct CommTraffic {
  Traffic sum;      // start_sum: the gradient's payload
  Traffic control;  // agree
  Traffic other;    // broadcast, gather, allgather, sum_in_rank_order
};

/// Nanoseconds to add to this rank's steady clock for rank 0's, and how far off that is at most.
struct ClockOffset {
  std::int64_t add = 0, error = 0;
};

/// How gradients are summed; always as a binary tree, ((0 + 1) + (2 + 3)) + ... (hierarchical:
/// of a node's ranks, then of the nodes).
/// `window`: every rank adds its slice of all ranks' buffers in shared memory; only between ranks of one
/// node. `allreduce`: over all ranks by messages, in pieces, by a thread of its own, while the caller goes on
/// (wire.h). `hierarchical`: every rank adds its slice of the buffers of its node's ranks in shared memory,
/// then that thread sums the slice with the same slice on the other nodes and hands it to the ranks of its
/// node; ranks that a node has more than the smallest own no slice. `automatic`: by what connects the ranks,
/// unless the environment has SSN_SUM: window on one node, allreduce with one rank a node, else hierarchical.
/// That is what lies in the processors' memory. In a GPU's, NCCL sums, in an order of its own, where the
/// build has it and `automatic` leaves the choice; else the data goes through the processor's memory.
enum class SumPath { automatic, window, allreduce, hierarchical };

/// So that a run in which a rank hangs has ended within half a minute.
inline constexpr double kHangTimeout = 25;

/// The ranks of a run. All functions but rank, size, local_size, traffic, set_timeout and abort are
/// collective: every rank calls the same ones in the same order with the same sizes, from one thread at a
/// time.
class Comm {
 public:
  Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  virtual ~Comm() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ranks on this machine, among which its cores are shared.
  int local_size() const { return local_size_; }
  /// Of the machine's GPUs that this process sees, takes the one with its number among the machine's ranks
  /// for all its work; for the CPU nothing. Before the first use of a GPU. A UsageError on all ranks where
  /// one has none or lacks CUDA's libraries, or two would share one.
  void use_device(Device device);
  /// "1 rank", "4 ranks on 1 node, summed in shared memory".
  virtual std::string text() const = 0;

  /// CPU memory that start_sum sums fastest, aligned to 256; contents undefined. Drop it before the
  /// communicator.
  virtual Storage allocate(std::size_t bytes) = 0;

  /// Whether sums of that device's memory are made in it.
  virtual bool sums_on(Device device) const { return size_ == 1 || device == Device::cpu; }
  /// Starts replacing every element by its sum over the ranks; the data belongs to the sum until `wait`,
  /// which waits for all that were started. Same ranks, same bits. On several ranks the data lies on each at
  /// the same place of the same `allocate`d storage, or on each elsewhere.
  SumHandle start_sum(std::span<float> data) {
    return start(data.data(), std::ssize(data), DType::f32, Device::cpu);
  }
  SumHandle start_sum(std::span<double> data) {
    return start(data.data(), std::ssize(data), DType::f64, Device::cpu);
  }
  /// f32 or f64, any device. Until the wait the data lives on, also where an error drops it elsewhere.
  SumHandle start_sum(const Tensor& data);
  void wait(const SumHandle& handle) { wait_until(handle.id); }
  void wait_all() { wait_until(started_); }
  /// Has what is queued on the GPU from now on come after the sums of its memory that were started. They are
  /// still to be waited for.
  virtual void join_sums() {}
  /// Of sums that `work` records (runtime/graph.h), and joins: none is done, and none counts. Returns what is
  /// to be counted when they are repeated. For sums that are made in the GPU's memory.
  Traffic record_sums(const std::function<void()>& work);
  /// Such a recording was queued: `wait_all` waits for its sums. Every rank repeats the same one.
  void repeat_sums(const Traffic& recorded);

  /// Whether a sum that was started goes on beside what the caller does.
  virtual bool sums_beside(Device = Device::cpu) const { return false; }
  /// Whether the sum over 2ᵏ ranks is, bit by bit, the one over fewer ranks of which each has added what is
  /// several ranks' here: not, if a node's ranks are no 2ᵏ, or not one after another, and not by NCCL.
  bool sums_as_tree(Device device = Device::cpu) const {
    return size_ == 1 || (sums_as_tree_ && (device == Device::cpu || !sums_on(device)));
  }

  /// What f32 sums travel as between ranks, from the next on: f32, or bf16 at half the bytes, which rounds
  /// each rank's (hierarchical: each node's) values and their sum, added in f32 (wire.h; in bf16 by NCCL,
  /// device_sum.h). False, and f32 it stays, where nothing travels: on one rank, and where all share memory.
  /// Ranks that ask for different ones are a UsageError on each.
  virtual bool set_wire(DType wire) = 0;
  /// Bytes that a rank of several hands over for a sum of so many elements.
  std::int64_t payload(std::int64_t count, DType dtype) const;

  /// Copies the root's bytes to all ranks.
  void broadcast(std::span<std::byte> data, int root = 0);
  /// Any device.
  void broadcast(const Tensor& data, int root = 0);
  void broadcast(std::string& text, int root = 0);
  /// The ranks' data one after another (size() times as much), on all ranks, or on rank 0 (nothing on the
  /// others).
  std::vector<std::byte> allgather(std::span<const std::byte> data) { return collect(data, true); }
  std::vector<std::byte> gather(std::span<const std::byte> data) { return collect(data, false); }
  /// Every rank's value, on all ranks.
  template <class T>
  std::vector<T> allgather(const T& value);
  /// Replaces each value by ((rank 0 + rank 1) + rank 2) + ...: the same bits on all ranks. For metrics and
  /// statistics.
  void sum_in_rank_order(std::span<double> values);
  double sum_in_rank_order(double value);
  /// The flags of all ranks, or-ed bit by bit: `if (comm.agree(stop))`. Four bytes of control traffic.
  std::uint32_t agree(std::uint32_t flags);
  virtual void barrier() = 0;
  /// The same for waits of minutes: ranks sleep until all have come, and leave their cores to the others.
  /// Slower by a millisecond.
  virtual void idle_barrier() = 0;

  /// From messages to rank 0 and back; the fastest counts.
  virtual ClockOffset clock_offset() { return {}; }

  /// Ends the run when a rank hangs for so many seconds while others wait for it (runtime/watchdog.h); 0:
  /// never. kHangTimeout until it is called.
  virtual void set_timeout(double /*seconds*/) {}

  /// What was handed over since the start.
  const CommTraffic& traffic() const { return traffic_; }

  /// Prints the message with this rank's number and ends all ranks with this exit code.
  [[noreturn]] virtual void abort(std::string_view message, int exit_code = 1) = 0;
  /// For run_ranks: every rank's text, on all ranks; nothing if some rank has not come here within `seconds`
  /// (negative: wait for ever). Texts are cut at 4000 bytes. Once only, as the last collective call.
  virtual std::optional<std::vector<std::string>> meet(std::string_view text, double seconds) = 0;

 protected:
  /// On the CPU, or where sums_on says so.
  virtual void sum(std::int64_t id, void* data, std::int64_t count, DType dtype, Device device) = 0;
  virtual void finish(std::int64_t id) = 0;
  virtual void broadcast_bytes(std::byte* data, std::size_t bytes, int root) = 0;
  /// `to` has size() * bytes; with everywhere false it is written on rank 0 only.
  virtual void gather_bytes(const std::byte* data, std::size_t bytes, std::byte* to, bool everywhere) = 0;
  virtual std::uint32_t or_flags(std::uint32_t flags) = 0;

  int rank_ = 0, size_ = 1, local_size_ = 1;
  int local_rank_ = 0;  // among the ranks of this machine
  int machine_ = 0;     // its first rank
  DType wire_ = DType::f32;
  bool sums_as_tree_ = true;

 private:
  SumHandle start(void* data, std::int64_t count, DType dtype, Device device);
  void wait_until(std::int64_t id) {
    finish(id);
    summing_.clear();
  }
  std::vector<std::byte> collect(std::span<const std::byte> data, bool everywhere);
  void count(Traffic& traffic, std::size_t bytes);

  std::int64_t started_ = 0;
  std::vector<Tensor> summing_;
  CommTraffic traffic_;
};

template <class T>
std::vector<T> Comm::allgather(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(size()));
  const std::vector<std::byte> bytes = allgather(std::as_bytes(std::span(&value, 1)));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(all.data()));
  return all;
}

/// One rank: every sum is the identity and nothing is counted.
class SoloComm : public Comm {
 public:
  std::string text() const override { return "1 rank"; }
  Storage allocate(std::size_t bytes) override { return Storage::allocate(Device::cpu, bytes); }
  bool set_wire(DType) override { return false; }
  void barrier() override {}
  void idle_barrier() override {}
  [[noreturn]] void abort(std::string_view message, int exit_code) override;
  std::optional<std::vector<std::string>> meet(std::string_view text, double) override {
    return std::vector{std::string(text)};
  }

 protected:
  void sum(std::int64_t, void*, std::int64_t, DType, Device) override {}
  void finish(std::int64_t) override {}
  void broadcast_bytes(std::byte*, std::size_t, int) override {}
  void gather_bytes(const std::byte* data, std::size_t bytes, std::byte* to, bool) override {
    std::copy(data, data + bytes, to);
  }
  std::uint32_t or_flags(std::uint32_t flags) override { return flags; }
};

/// The communicator over all ranks that a launcher (mpirun, srun) started; without one, SoloComm, and MPI is
/// not touched. Once a process. A UsageError where several tasks were started that do not know of each
/// other; in builds without MPI, where several were started at all.
std::unique_ptr<Comm> make_comm(SumPath path = SumPath::automatic);

/// Runs a program's body on every rank and returns the exit code: the body's own, 2 for a UsageError, 1 for
/// any other exception. An error that all ranks find is printed once; one that a rank finds alone is printed
/// with its rank, and the rank ends the others, wherever they wait. On several ranks the largest code is
/// returned on all.
int run_ranks(Comm& comm, const std::function<int()>& body);
/// The same with make_comm, whose errors are treated alike: all that a program's main needs.
int run_ranks(const std::function<int(Comm&)>& body);

}  // namespace ssn
