#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/mpi_check.h"
#include "runtime/worker.h"

namespace ssn {

/// What goes over a network goes in pieces, so that counts fit an int and the library's buffers stay small.
constexpr std::size_t kPieceBytes = 256 << 10;

/// Sums over the ranks of a communicator, by a thread that mostly waits for the network.
///
/// A piece is cut in a slice a rank. Each rank receives its slice of all ranks, adds them (tree_sum.h), and
/// sends the sum to all: 2(n−1)/n of the bytes leave every rank, and all ranks get the same bits. MPI makes
/// no progress on its own, and the thread shares a core with one that computes: so many pieces are on their
/// way at once, for the network to have work until the thread gets the core again, and it naps between two
/// looks rather than wait in a loop.
class WireSum {
 public:
  /// Told of every piece, in bytes [begin, end) of the data, as soon as it is summed.
  using Done = std::function<void(std::int64_t begin, std::int64_t end)>;

  /// Without a worker, sums in start().
  WireSum(MPI_Comm comm, Worker* worker);
  ~WireSum();
  WireSum(const WireSum&) = delete;
  WireSum& operator=(const WireSum&) = delete;

  /// Starts replacing `count` f32 or f64 elements by their sum. What travels has the type `wire`: the data's
  /// own, or bf16 for f32. Then, with x̃ for x rounded to bf16, the sum is Σ x̃ᵣ, added in f32, rounded to
  /// bf16; its error is at most 2⁻⁸ (Σ |xᵣ| + |Σ x̃ᵣ|), to first order.
  void start(std::byte* data, std::int64_t count, DType dtype, DType wire, Done done);
  /// Until all are summed; meanwhile the worker does not nap. Throws what went wrong.
  void wait();

 private:
  struct Sum;
  struct Piece;

  void drain();
  void begin_pieces();
  bool look();
  void exchange(Piece& piece);
  void add_and_spread(Piece& piece);
  void send(Piece& piece, const std::byte* data, std::int64_t bytes, std::int64_t to, int tag);
  void receive(Piece& piece, std::byte* data, std::int64_t bytes, std::int64_t from, int tag);
  void finish(Piece& piece);

  MPI_Comm comm_;
  Worker* worker_;
  std::int64_t ranks_ = 1, rank_ = 0, piece_bytes_ = kPieceBytes;
  std::atomic<bool> hurry_{false};
  std::mutex mutex_;  // guards started_
  std::deque<std::shared_ptr<Sum>> started_;

  // The worker's.
  std::deque<std::shared_ptr<Sum>> waiting_;  // of which some elements are not on their way yet
  std::list<Piece> flying_;
  std::vector<MPI_Request> requests_;  // of all pieces: one look makes progress for all
  std::vector<Piece*> owners_;         // of the requests
  std::vector<int> arrived_;
  int pieces_ = 0;               // so far, modulo the tags in use
  std::int64_t busy_until_ = 0;  // where the last sum's span ended
};

}  // namespace ssn
