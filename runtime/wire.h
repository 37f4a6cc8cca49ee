#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/mpi_check.h"

namespace ssn {

/// What goes over a network goes in pieces, so that counts fit an int and the library's buffers stay small:
/// 256 KiB reach the full speed of a network where whole gradients reach half of it.
constexpr std::size_t kPieceBytes = 256 << 10;

/// Sums over the ranks of a communicator, in the calling thread.
class WireSum {
 public:
  /// Told of every piece, in bytes [begin, end) of the data, as soon as it is summed.
  using Done = std::function<void(std::int64_t begin, std::int64_t end)>;

  explicit WireSum(MPI_Comm comm);
  /// Replaces f32 or f64 elements by their sum, which MPI_Allreduce makes.
  void sum(std::byte* data, std::int64_t count, DType dtype, const Done& done);
  /// The same for f32, where bf16 travels: with x̃ for x rounded to bf16, the sum is Σ x̃ᵣ, added in f32 in the
  /// order of the ranks, rounded to bf16. Its error is at most 2⁻⁹ (Σ |xᵣ| + |Σ x̃ᵣ|), to first order. Each
  /// rank adds a slice of the piece. All ranks get the same bits.
  void sum_as_bf16(float* data, std::int64_t count, const Done& done);

 private:
  void sum_piece_as_bf16(float* data, std::int64_t count);

  MPI_Comm comm_;
  std::int64_t ranks_ = 1;
  std::vector<std::uint16_t> mine_, received_;  // of a piece, a slice a rank
};

}  // namespace ssn
