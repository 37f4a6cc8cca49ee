#pragma once
#include <cstddef>
#include <mutex>

// What the double of the CUDA runtime knows of device memory.
namespace cuda_on_host {

/// Held while a kernel runs and while the list of allocations changes.
std::mutex& device_mutex();

enum class Place { host, device, beyond };  // beyond: begins in a device allocation and leaves it
/// Where these bytes lie. The mutex must be held.
Place place_of(const void* begin, std::size_t bytes);
/// The device whose memory these bytes are, −1: none. Takes the mutex.
int device_of(const void* begin, std::size_t bytes);

}  // namespace cuda_on_host
