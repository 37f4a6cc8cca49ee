#include "runtime/wire.h"

#include <algorithm>

#include "runtime/bf16.h"
#include "runtime/trace.h"

namespace ssn {
namespace {

SSN_CLONES void narrow(const float* x, std::int64_t n, std::uint16_t* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = bf16::rounded(x[i]);
}

float widened(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

SSN_CLONES void widen(const std::uint16_t* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = widened(x[i]);
}

/// y = the sum of `rows` rows of n elements, in their order, rounded.
SSN_CLONES void add_rows(const std::uint16_t* x, std::int64_t rows, std::int64_t n, std::uint16_t* y) {
  constexpr std::int64_t kBlock = 1024;  // stays in the first cache
  float sum[kBlock];
  for (std::int64_t at = 0; at < n; at += kBlock) {
    const std::int64_t m = std::min(kBlock, n - at);
    widen(x + at, m, sum);
    for (std::int64_t r = 1; r < rows; ++r) {
      const std::uint16_t* row = x + r * n + at;
#pragma omp simd
      for (std::int64_t i = 0; i < m; ++i) sum[i] += widened(row[i]);
    }
    narrow(sum, m, y + at);
  }
}

}  // namespace

WireSum::WireSum(MPI_Comm comm) : comm_(comm) {
  int ranks = 0;
  check_mpi(MPI_Comm_size(comm_, &ranks), "start MPI");
  ranks_ = ranks;
}

void WireSum::sum(std::byte* data, std::int64_t count, DType dtype, const Done& done) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const Span span("allreduce", count * size);
  const MPI_Datatype type = dtype == DType::f32 ? MPI_FLOAT : MPI_DOUBLE;
  const std::int64_t piece = static_cast<std::int64_t>(kPieceBytes) / size;
  for (std::int64_t at = 0; at < count; at += piece) {
    const std::int64_t n = std::min(piece, count - at);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, data + at * size, static_cast<int>(n), type, MPI_SUM, comm_),
              "sum over ranks");
    if (done) done(at * size, (at + n) * size);
  }
}

void WireSum::sum_as_bf16(float* data, std::int64_t count, const Done& done) {
  const Span span("allreduce", count * 2);
  constexpr std::int64_t kPiece = kPieceBytes / sizeof(bf16);
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t n = std::min(kPiece, count - at);
    sum_piece_as_bf16(data + at, n);
    if (done) done(at * 4, (at + n) * 4);
  }
}

void WireSum::sum_piece_as_bf16(float* data, std::int64_t count) {
  const std::int64_t slice = (count + ranks_ - 1) / ranks_;
  const int n = static_cast<int>(slice);
  mine_.resize(static_cast<std::size_t>(slice * ranks_));
  std::fill(mine_.begin() + count, mine_.end(), 0);
  received_.resize(mine_.size());
  narrow(data, count, mine_.data());
  check_mpi(MPI_Alltoall(mine_.data(), n, MPI_UINT16_T, received_.data(), n, MPI_UINT16_T, comm_),
            "sum over ranks");
  add_rows(received_.data(), ranks_, slice, mine_.data());
  check_mpi(MPI_Allgather(mine_.data(), n, MPI_UINT16_T, received_.data(), n, MPI_UINT16_T, comm_),
            "sum over ranks");
  widen(received_.data(), count, data);
}

}  // namespace ssn
