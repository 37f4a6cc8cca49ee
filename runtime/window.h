#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/mpi_check.h"

namespace ssn {

/// Elements [begin, end).
struct Slice {
  std::int64_t begin = 0, end = 0;
};

/// Memory of all ranks of a node that each of them sees, one part a rank. All functions but data and holds
/// are collective over the node, its making and its end too.
class Window {
 public:
  /// `bytes` a rank. The communicator, of the ranks of one node, must outlive the window.
  Window(MPI_Comm node, std::size_t bytes);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window();

  /// Whether there is so much shared memory. Asked for more, Open MPI, which keeps windows in /dev/shm, fails
  /// on one rank and leaves the others waiting; containers have little of it.
  static bool fits(std::size_t bytes);

  /// This rank's part, aligned to 256.
  std::byte* data() const { return parts_[rank_] + kHeader; }
  std::size_t bytes() const { return bytes_; }
  bool holds(const std::byte* data) const { return data >= this->data() && data < this->data() + bytes_; }

  /// Replaces `count` elements, `offset` bytes behind the beginning of every part, by their sum over the
  /// ranks (tree_sum.h). Ranks that do not sum the same are an Error on each.
  void sum(std::int64_t offset, std::int64_t count, DType dtype);
  /// The same sum, a slice of it on each of the first `owners` ranks, in its own part; returned is this
  /// rank's slice. Until the next fence, this rank alone may write that slice of the other parts.
  Slice sum_slice(std::int64_t offset, std::int64_t count, DType dtype, int owners);
  /// Copies bytes [begin, end) behind the beginning of this rank's part to the others'.
  void spread(std::int64_t begin, std::int64_t end);
  /// All ranks' stores before it are seen by all ranks' loads after it.
  void fence();

 private:
  /// What a rank is about to sum, in front of its part: ranks that do not agree are found out.
  struct Announcement {
    std::int64_t offset, count, dtype;
    bool operator==(const Announcement&) const = default;
  };
  static constexpr std::size_t kHeader = 256;

  /// In turns one of two, so that a rank that is ahead leaves alone what others still read.
  Announcement& announcement(std::size_t rank) {
    return reinterpret_cast<Announcement*>(parts_[rank])[turn_];
  }
  void announce(const Announcement& mine);
  template <class T>
  std::vector<T*> buffers(std::int64_t offset) const;
  template <class T>
  void sum_slice(std::int64_t offset, Slice slice, bool everywhere);

  MPI_Comm node_;
  MPI_Win win_ = MPI_WIN_NULL;
  std::size_t rank_ = 0;
  std::size_t bytes_, turn_ = 0;
  std::vector<std::byte*> parts_;  // every rank's part, in this rank's addresses
};

}  // namespace ssn
