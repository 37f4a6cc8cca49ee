#include "runtime/wire.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "runtime/bf16.h"
#include "runtime/liveness.h"
#include "runtime/trace.h"

namespace ssn {
namespace {

/// On their way at once, at most: several times what a network carries while a thread waits for a core.
constexpr std::int64_t kBytesInFlight = 8 << 20;
/// A slice has this much at least, so that latency does not count: with many ranks, pieces are larger.
constexpr std::int64_t kLeastSliceBytes = 4 << 10;
/// Two for a piece; more than can be in flight.
constexpr int kTags = 1 << 12;

SSN_CLONES void narrow(const float* x, std::int64_t n, bf16* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(y[i], x[i]);
}

SSN_CLONES void widen(const bf16* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
}

/// y = the sum of the rows, of n elements, in their order. y may be one of them.
template <class T>
SSN_CLONES void add_rows(const std::vector<const T*>& rows, std::int64_t n, T* y) {
  constexpr std::int64_t kBlock = 1024;  // stays in the first cache
  Wider<T> sum[kBlock];
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t m = std::min(kBlock, n - at);
    std::copy_n(rows[0] + at, m, sum);
    for (std::size_t r = 1; r < rows.size(); ++r) {
      const T* row = rows[r] + at;
#pragma omp simd
      for (std::int64_t i = 0; i < m; ++i) sum[i] += row[i];
    }
#pragma omp simd
    for (std::int64_t i = 0; i < m; ++i) store(y[at + i], sum[i]);
  }
}

}  // namespace

struct WireSum::Sum {
  std::byte* data;
  std::int64_t count;
  DType dtype, wire;
  Done done;
  std::int64_t begun = 0, summed = 0;  // elements
  std::int64_t begin = 0;              // on the trace's clock

  std::int64_t wire_size() const { return static_cast<std::int64_t>(size_of(wire)); }
};

struct WireSum::Piece {
  std::shared_ptr<Sum> sum;
  std::int64_t first, count;  // elements of the sum's data
  int tag;
  std::byte* data;              // of the piece, as it travels: the sum's or `half`
  std::vector<bf16> half;       // the piece rounded
  std::vector<std::byte> rows;  // this rank's slice, of every rank
  std::vector<MPI_Request> requests;
  bool spreading = false;  // the sums, after the slices

  /// Bytes [begin, end) of rank r's slice.
  std::pair<std::int64_t, std::int64_t> slice(std::int64_t r, std::int64_t ranks) const {
    return {count * r / ranks * sum->wire_size(), count * (r + 1) / ranks * sum->wire_size()};
  }
};

WireSum::WireSum(MPI_Comm comm, Worker* worker) : comm_(comm), worker_(worker) {
  int ranks = 0, rank = 0;
  check_mpi(MPI_Comm_size(comm_, &ranks), "start MPI");
  check_mpi(MPI_Comm_rank(comm_, &rank), "start MPI");
  ranks_ = ranks;
  rank_ = rank;
  piece_bytes_ = std::max(piece_bytes_, ranks_ * kLeastSliceBytes);
}

WireSum::~WireSum() = default;

void WireSum::start(std::byte* data, std::int64_t count, DType dtype, DType wire, Done done) {
  auto sum = std::make_shared<Sum>(Sum{data, count, dtype, wire, std::move(done)});
  {
    const std::lock_guard lock(mutex_);
    started_.push_back(std::move(sum));
  }
  if (worker_)
    worker_->add([this] { drain(); });
  else
    drain();
}

void WireSum::wait() {
  hurry_ = true;
  if (worker_) worker_->wait();
  hurry_ = false;
}

/// Until nothing is left, what is started meanwhile included.
void WireSum::drain() {
  using namespace std::chrono_literals;
  for (;;) {
    bool moved = begin_pieces();
    for (auto piece = flying_.begin(); piece != flying_.end();) {
      const bool arrived = advance(*piece);
      moved = moved || arrived;
      if (arrived && !piece->spreading) {
        finish(*piece);
        piece = flying_.erase(piece);
      } else {
        ++piece;
      }
    }
    if (flying_.empty() && !moved) return;
    if (!moved && hurry_)
      std::this_thread::yield();
    else if (!moved)
      std::this_thread::sleep_for(20us);
  }
}

/// As many as may be on their way. Whether there was one.
bool WireSum::begin_pieces() {
  {
    const std::lock_guard lock(mutex_);
    for (; !started_.empty(); started_.pop_front()) waiting_.push_back(std::move(started_.front()));
  }
  bool any = false;
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(2, kBytesInFlight / piece_bytes_));
  while (!waiting_.empty() && flying_.size() < most) {
    const std::shared_ptr<Sum>& sum = waiting_.front();
    if (sum->begun == 0 && detail::g_trace_on) sum->begin = detail::trace_clock();
    const std::int64_t n = std::min(piece_bytes_ / sum->wire_size(), sum->count - sum->begun);
    flying_.push_back({sum, sum->begun, n, 2 * (pieces_++ % (kTags / 2)), nullptr});
    sum->begun += n;
    exchange(flying_.back());
    if (sum->begun == sum->count) waiting_.pop_front();
    any = true;
  }
  return any;
}

/// Sends every rank its slice.
void WireSum::exchange(Piece& piece) {
  const Sum& sum = *piece.sum;
  piece.data = sum.data + piece.first * static_cast<std::int64_t>(size_of(sum.dtype));
  if (sum.wire != sum.dtype) {
    piece.half.resize(static_cast<std::size_t>(piece.count));
    narrow(reinterpret_cast<const float*>(piece.data), piece.count, piece.half.data());
    piece.data = reinterpret_cast<std::byte*>(piece.half.data());
  }
  const auto [begin, end] = piece.slice(rank_, ranks_);
  piece.rows.resize(static_cast<std::size_t>((end - begin) * ranks_));
  for (std::int64_t k = 1; k < ranks_; ++k) {
    const std::int64_t to = (rank_ + k) % ranks_, from = (rank_ - k + ranks_) % ranks_;
    const auto [first, last] = piece.slice(to, ranks_);
    check_mpi(MPI_Irecv(piece.rows.data() + from * (end - begin), static_cast<int>(end - begin), MPI_BYTE,
                        static_cast<int>(from), piece.tag, comm_, &piece.requests.emplace_back()),
              "sum over ranks");
    check_mpi(MPI_Isend(piece.data + first, static_cast<int>(last - first), MPI_BYTE, static_cast<int>(to),
                        piece.tag, comm_, &piece.requests.emplace_back()),
              "sum over ranks");
  }
}

/// Whether the messages have arrived. If these were slices, the sum is on its way now.
bool WireSum::advance(Piece& piece) {
  int arrived = 0;
  check_mpi(MPI_Testall(static_cast<int>(piece.requests.size()), piece.requests.data(), &arrived,
                        MPI_STATUSES_IGNORE),
            "sum over ranks");
  if (!arrived) return false;
  piece.requests.clear();
  piece.spreading = !piece.spreading;
  if (!piece.spreading) return true;
  const auto [begin, end] = piece.slice(rank_, ranks_);
  std::byte* const own = piece.data + begin;
  const auto add = [&, bytes = end - begin]<class T>(T* sum) {
    std::vector<const T*> rows;
    for (std::int64_t r = 0; r < ranks_; ++r)
      rows.push_back(r == rank_ ? sum : reinterpret_cast<const T*>(piece.rows.data() + r * bytes));
    add_rows(rows, bytes / static_cast<std::int64_t>(sizeof(T)), sum);
  };
  switch (piece.sum->wire) {
    case DType::bf16: add(reinterpret_cast<bf16*>(own)); break;
    case DType::f32: add(reinterpret_cast<float*>(own)); break;
    default: add(reinterpret_cast<double*>(own)); break;
  }
  for (std::int64_t k = 1; k < ranks_; ++k) {
    const std::int64_t to = (rank_ + k) % ranks_, from = (rank_ - k + ranks_) % ranks_;
    const auto [first, last] = piece.slice(from, ranks_);
    check_mpi(MPI_Irecv(piece.data + first, static_cast<int>(last - first), MPI_BYTE, static_cast<int>(from),
                        piece.tag + 1, comm_, &piece.requests.emplace_back()),
              "sum over ranks");
    check_mpi(MPI_Isend(own, static_cast<int>(end - begin), MPI_BYTE, static_cast<int>(to), piece.tag + 1,
                        comm_, &piece.requests.emplace_back()),
              "sum over ranks");
  }
  return true;
}

void WireSum::finish(Piece& piece) {
  note_progress();
  Sum& sum = *piece.sum;
  const auto size = static_cast<std::int64_t>(size_of(sum.dtype));
  if (sum.wire != sum.dtype)
    widen(piece.half.data(), piece.count, reinterpret_cast<float*>(sum.data + piece.first * size));
  if (sum.done) sum.done(piece.first * size, (piece.first + piece.count) * size);
  sum.summed += piece.count;
  if (sum.summed < sum.count || sum.begin == 0) return;
  // Sums overtake each other a little. A thread's spans lie one behind another.
  const std::int64_t end = detail::trace_clock();
  detail::trace_event("allreduce", std::max(sum.begin, busy_until_), end, sum.count * sum.wire_size());
  busy_until_ = end;
}

}  // namespace ssn
