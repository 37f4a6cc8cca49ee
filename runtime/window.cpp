#include "runtime/window.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>

#include "runtime/parallel.h"
#include "runtime/tree_sum.h"

namespace ssn {
namespace {

constexpr std::size_t kAlign = 256;

/// Adds the buffers, two at least; the sum replaces elements [begin, end) of those in `to`.
template <class T>
void add_buffers(const std::vector<T*>& buffers, const std::vector<T*>& to, Slice slice) {
  constexpr std::int64_t kBlock = kTreeBlock<T>;
  const std::vector<const T*> rows(buffers.begin(), buffers.end());
  parallel_for(slice.end - slice.begin, 16 * kBlock, [&](std::int64_t first, std::int64_t stop) {
    for (std::int64_t at = slice.begin + first; at < slice.begin + stop; at += kBlock) {
      const std::int64_t n = std::min(kBlock, slice.begin + stop - at);
      add_as_tree<T>(rows, at, n, to[0] + at);
      for (std::size_t r = 1; r < to.size(); ++r) std::copy_n(to[0] + at, n, to[r] + at);
    }
  });
}

/// The part of `count` elements that one of several owners sums. Slices start at cache lines, for either
/// type.
Slice slice_of(std::int64_t owner, std::int64_t owners, std::int64_t count) {
  constexpr std::int64_t kUnit = 64;
  const std::int64_t units = (count + kUnit - 1) / kUnit;
  const auto bound = [&](std::int64_t i) { return std::min(units * i / owners * kUnit, count); };
  return owner < owners ? Slice{bound(owner), bound(owner + 1)} : Slice{};
}

}  // namespace

Window::Window(MPI_Comm node, std::size_t bytes) : node_(node), bytes_(bytes) {
  int rank = 0, ranks = 0;
  check_mpi(MPI_Comm_rank(node_, &rank), "allocate");
  check_mpi(MPI_Comm_size(node_, &ranks), "allocate");
  rank_ = static_cast<std::size_t>(rank);
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "allocate");
  // Every part starts at a page.
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "allocate");
  void* mine = nullptr;
  const auto size = static_cast<MPI_Aint>(kHeader + bytes + kAlign);
  check_mpi(MPI_Win_allocate_shared(size, 1, info, node_, static_cast<void*>(&mine), &win_), "allocate");
  check_mpi(MPI_Info_free(&info), "allocate");
  check_mpi(MPI_Win_set_errhandler(win_, MPI_ERRORS_RETURN), "allocate");
  for (int r = 0; r < ranks; ++r) {
    MPI_Aint part_size = 0;
    int unit = 0;
    void* part = nullptr;
    check_mpi(MPI_Win_shared_query(win_, r, &part_size, &unit, static_cast<void*>(&part)), "allocate");
    // Pages are mapped whole, so the remainder is the same in every rank's addresses.
    const std::size_t past = reinterpret_cast<std::uintptr_t>(part) % kAlign;
    parts_.push_back(static_cast<std::byte*>(part) + (past ? kAlign - past : 0));
  }
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, win_), "allocate");
}

Window::~Window() {
  MPI_Win_unlock_all(win_);
  MPI_Win_free(&win_);
}

bool Window::fits(std::size_t bytes) {
  struct statvfs fs = {};
  return statvfs("/dev/shm", &fs) != 0 || fs.f_bavail * fs.f_frsize >= bytes;
}

void Window::fence() {
  check_mpi(MPI_Win_sync(win_), "sum over ranks");
  check_mpi(MPI_Barrier(node_), "sum over ranks");
  check_mpi(MPI_Win_sync(win_), "sum over ranks");
}

void Window::announce(const Announcement& mine) {
  turn_ = 1 - turn_;
  announcement(rank_) = mine;
  fence();
  for (std::size_t r = 0; r < parts_.size(); ++r) {
    const Announcement theirs = announcement(r);
    if (theirs == mine) continue;
    fence();  // all have read: each finds a rank unlike itself
    fail("sum over ranks", "rank {} of a node sums {} elements at byte {}, rank {} sums {} at byte {}", rank_,
         mine.count, mine.offset, r, theirs.count, theirs.offset);
  }
}

template <class T>
std::vector<T*> Window::buffers(std::int64_t offset) const {
  std::vector<T*> all;
  for (std::byte* part : parts_) all.push_back(reinterpret_cast<T*>(part + kHeader + offset));
  return all;
}

template <class T>
void Window::sum_slice(std::int64_t offset, Slice slice, bool everywhere) {
  const std::vector<T*> all = buffers<T>(offset);
  if (all.size() > 1) add_buffers(all, everywhere ? all : std::vector{all[rank_]}, slice);
}

void Window::sum(std::int64_t offset, std::int64_t count, DType dtype) {
  announce({offset, count, static_cast<std::int64_t>(dtype)});
  const Slice slice = slice_of(static_cast<std::int64_t>(rank_), std::ssize(parts_), count);
  if (dtype == DType::f32)
    sum_slice<float>(offset, slice, true);
  else
    sum_slice<double>(offset, slice, true);
  fence();
}

Slice Window::sum_slice(std::int64_t offset, std::int64_t count, DType dtype, int owners) {
  announce({offset, count, static_cast<std::int64_t>(dtype)});
  const Slice slice = slice_of(static_cast<std::int64_t>(rank_), owners, count);
  if (dtype == DType::f32)
    sum_slice<float>(offset, slice, false);
  else
    sum_slice<double>(offset, slice, false);
  return slice;
}

void Window::spread(std::int64_t begin, std::int64_t end) {
  for (std::size_t r = 0; r < parts_.size(); ++r) {
    if (r == rank_) continue;
    std::memcpy(parts_[r] + kHeader + begin, data() + begin, static_cast<std::size_t>(end - begin));
  }
}

}  // namespace ssn
