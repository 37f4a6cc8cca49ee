#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {

/// Plain data that travels as a kernel's argument: in the order of the queue, without a staging buffer, and
/// without waiting for the queue as a copy from pageable memory would.
struct Parcel {
  static constexpr int kWords = 448;  // 3584 bytes; a kernel takes 4096 bytes of arguments
  std::uint64_t words[kWords];
};
inline __global__ void __launch_bounds__(Parcel::kWords) unpack(Parcel parcel, int count, std::uint64_t* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = parcel.words[i];
}

/// Copies `count` values to the device's memory `to`, and returns them there.
template <class V>
const V* upload(CudaQueue& q, const V* values, std::size_t count, void* to) {
  static_assert(std::is_trivially_copyable_v<V> && sizeof(V) % sizeof(std::uint64_t) == 0);
  const std::size_t words = count * sizeof(V) / sizeof(std::uint64_t);
  for (std::size_t at = 0; at < words; at += Parcel::kWords) {
    Parcel parcel;
    const std::size_t part = std::min<std::size_t>(Parcel::kWords, words - at);
    std::memcpy(parcel.words, reinterpret_cast<const std::uint64_t*>(values) + at,
                part * sizeof(std::uint64_t));
    launch(q, "upload", unpack, 1, Parcel::kWords, 0, parcel, part, static_cast<std::uint64_t*>(to) + at);
  }
  return static_cast<const V*>(to);
}
template <class V>
const V* upload(CudaQueue& q, const std::vector<V>& values, void* to) {
  return upload(q, values.data(), values.size(), to);
}

}  // namespace ssn::kernels
