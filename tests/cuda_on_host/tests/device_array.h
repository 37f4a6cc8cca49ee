#pragma once
#include <cstring>
#include <span>
#include <vector>

#include "runtime/device_memory.h"

namespace ssn {

/// Elements in device memory. Their values are undefined at first.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n)
      : size_(n), data_(static_cast<T*>(memory::allocate(cuda_queue(), n * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    memory::copy(cuda_queue(), data_, values.data(), size_ * sizeof(T));
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { memory::release(cuda_queue(), data_); }
  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> v(size_);
    memory::copy(cuda_queue(), v.data(), data_, size_ * sizeof(T));
    return v;
  }

 private:
  std::size_t size_;
  T* data_;
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(T)));
}

}  // namespace ssn
