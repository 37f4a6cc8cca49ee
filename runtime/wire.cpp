#include "runtime/wire.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "runtime/bf16.h"
#include "runtime/liveness.h"
#include "runtime/trace.h"
#include "runtime/tree_sum.h"

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
  int open = 0;                 // messages that have not arrived
  bool spreading = false;       // the sums, after the slices
  bool summed = false;

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
    begin_pieces();
    if (flying_.empty()) return;
    if (look()) continue;
    if (hurry_)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(50us);
  }
}

/// As many as may be on their way.
void WireSum::begin_pieces() {
  {
    const std::lock_guard lock(mutex_);
    for (; !started_.empty(); started_.pop_front()) waiting_.push_back(std::move(started_.front()));
  }
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(2, kBytesInFlight / piece_bytes_));
  while (!waiting_.empty() && flying_.size() < most) {
    const std::shared_ptr<Sum>& sum = waiting_.front();
    if (sum->begun == 0 && detail::g_trace_on) sum->begin = detail::trace_clock();
    const std::int64_t n = std::min(piece_bytes_ / sum->wire_size(), sum->count - sum->begun);
    flying_.push_back({sum, sum->begun, n, 2 * (pieces_++ % (kTags / 2)), nullptr});
    sum->begun += n;
    exchange(flying_.back());
    if (sum->begun == sum->count) waiting_.pop_front();
  }
}

/// Whether a message has arrived. Pieces whose messages all have go on.
bool WireSum::look() {
  int count = 0;
  arrived_.resize(requests_.size());
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, arrived_.data(),
                         MPI_STATUSES_IGNORE),
            "sum over ranks");
  if (count <= 0) return false;
  std::vector<Piece*> ready;
  for (int i = 0; i < count; ++i) {
    Piece* const piece = owners_[static_cast<std::size_t>(arrived_[static_cast<std::size_t>(i)])];
    if (--piece->open == 0) ready.push_back(piece);
  }
  std::size_t left = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[left] = requests_[i];
    owners_[left++] = owners_[i];
  }
  requests_.resize(left);
  owners_.resize(left);
  for (Piece* piece : ready) {
    if (piece->spreading)
      finish(*piece);
    else
      add_and_spread(*piece);
  }
  flying_.remove_if([](const Piece& piece) { return piece.summed; });
  return true;
}

void WireSum::send(Piece& piece, const std::byte* data, std::int64_t bytes, std::int64_t to, int tag) {
  ++piece.open;
  owners_.push_back(&piece);
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to), tag, comm_,
                      &requests_.emplace_back(MPI_REQUEST_NULL)),
            "sum over ranks");
}

void WireSum::receive(Piece& piece, std::byte* data, std::int64_t bytes, std::int64_t from, int tag) {
  ++piece.open;
  owners_.push_back(&piece);
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(from), tag, comm_,
                      &requests_.emplace_back(MPI_REQUEST_NULL)),
            "sum over ranks");
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
    receive(piece, piece.rows.data() + from * (end - begin), end - begin, from, piece.tag);
    send(piece, piece.data + first, last - first, to, piece.tag);
  }
}

/// The slices have come: sends every rank the sum of this rank's.
void WireSum::add_and_spread(Piece& piece) {
  piece.spreading = true;
  const auto [begin, end] = piece.slice(rank_, ranks_);
  std::byte* const own = piece.data + begin;
  const auto add = [&, bytes = end - begin]<class T>(T* sum) {
    std::vector<const T*> rows;
    for (std::int64_t r = 0; r < ranks_; ++r)
      rows.push_back(r == rank_ ? sum : reinterpret_cast<const T*>(piece.rows.data() + r * bytes));
    const auto n = bytes / static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t at = 0; at < n; at += kTreeBlock<T>)
      add_as_tree<T>(rows, at, std::min(kTreeBlock<T>, n - at), sum + at);
  };
  switch (piece.sum->wire) {
    case DType::bf16: add(reinterpret_cast<bf16*>(own)); break;
    case DType::f32: add(reinterpret_cast<float*>(own)); break;
    default: add(reinterpret_cast<double*>(own)); break;
  }
  for (std::int64_t k = 1; k < ranks_; ++k) {
    const std::int64_t to = (rank_ + k) % ranks_, from = (rank_ - k + ranks_) % ranks_;
    const auto [first, last] = piece.slice(from, ranks_);
    receive(piece, piece.data + first, last - first, from, piece.tag + 1);
    send(piece, own, end - begin, to, piece.tag + 1);
  }
}

void WireSum::finish(Piece& piece) {
  note_progress();
  piece.summed = true;
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
