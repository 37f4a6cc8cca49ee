#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {

/// Plain data that travels as a kernel's argument: in the order of the queue, without a staging buffer, and
/// without waiting for the queue as a copy from pageable memory would.
template <int kWords>
struct Parcel {
  std::uint64_t words[kWords];
};
constexpr int kUnpackThreads = 512;
template <int kWords>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack(Parcel<kWords> parcel, int count, std::uint64_t* to) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kUnpackThreads) to[i] = parcel.words[i];
}

/// Copies `count` words, as many as fit into one parcel.
template <int kWords>
void send_parcel(CudaQueue& q, const std::uint64_t* words, std::size_t count, std::uint64_t* to) {
  Parcel<kWords> parcel;
  std::memcpy(parcel.words, words, count * sizeof(std::uint64_t));
  launch(q, "upload", unpack<kWords>, 1, kUnpackThreads, 0, parcel, count, to);
}

/// Copies `count` values to the device's memory `to`, and returns them there.
template <class V>
const V* upload(CudaQueue& q, const V* values, std::size_t count, void* to) {
  static_assert(std::is_trivially_copyable_v<V> && sizeof(V) % sizeof(std::uint64_t) == 0);
  constexpr int kSmall = 448;  // a kernel takes 4096 bytes of arguments, and 32764 since CUDA 12.1
  constexpr int kLarge = CUDART_VERSION >= 12010 ? 4032 : kSmall;
  const auto* words = reinterpret_cast<const std::uint64_t*>(values);
  const std::size_t all = count * sizeof(V) / sizeof(std::uint64_t);
  for (std::size_t at = 0; at < all; at += kLarge) {
    const std::size_t part = std::min<std::size_t>(kLarge, all - at);
    (part > kSmall ? send_parcel<kLarge> : send_parcel<kSmall>)(q, words + at, part,
                                                                static_cast<std::uint64_t*>(to) + at);
  }
  return static_cast<const V*>(to);
}
template <class V>
const V* upload(CudaQueue& q, const std::vector<V>& values, void* to) {
  return upload(q, values.data(), values.size(), to);
}

}  // namespace ssn::kernels
