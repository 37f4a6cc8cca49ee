#include "runtime/tensor.h"

#include <algorithm>

#include "runtime/device_memory.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace ssn {
namespace {

/// Calls f with a null pointer of the element's C++ type.
template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(static_cast<float*>(nullptr));
    case DType::f64: return f(static_cast<double*>(nullptr));
    case DType::i32: return f(static_cast<std::int32_t*>(nullptr));
    case DType::i64: return f(static_cast<std::int64_t*>(nullptr));
    case DType::u8: return f(static_cast<std::uint8_t*>(nullptr));
    case DType::bf16: return f(static_cast<bf16*>(nullptr));
  }
}

/// In a dry run what is large, or on a GPU, has no memory to be written to.
bool pretends(Device device, std::size_t bytes) {
  constexpr std::size_t kLarge = 1 << 16;
  return dry_run() && (device == Device::cuda || bytes >= kLarge);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ = Storage::allocate(device, t.bytes());
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  if (pretends(device, t.bytes())) return t;
  on_queue(device, "zeros", [&](auto& q) { memory::fill_bytes(q, t.raw(), 0, t.bytes()); });
  return t;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  t.fill(value);
  return t;
}

Tensor Tensor::over(Storage storage, const Shape& shape, DType dtype) {
  Tensor t;
  t.storage_ = std::move(storage);
  t.shape_ = shape;
  t.dtype_ = dtype;
  check(t.bytes() <= t.storage_.bytes(), "tensor", "shape {} needs {} bytes, the storage has {}",
        shape.text(), t.bytes(), t.storage_.bytes());
  return t;
}

Tensor Tensor::view(const Shape& shape) const {
  check(shape.size() == size(), "view", "{} has {} elements, {} has {}", shape_.text(), size(), shape.text(),
        shape.size());
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::slice(std::int64_t first, const Shape& shape) const {
  check(first >= 0 && first + shape.size() <= size(), "slice", "elements {} to {} of a tensor of {}", first,
        first + shape.size(), size());
  Tensor t = *this;
  t.offset_ += static_cast<std::size_t>(first) * size_of(dtype_);
  t.shape_ = shape;
  return t;
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  Tensor t = empty(shape_, dtype_, device);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  check(device() == Device::cpu, "convert", "only CPU tensors are converted, this one is on {}",
        name_of(device()));
  Tensor t = empty(shape_, dtype);
  with_type(dtype_, [&]<class From>(From*) {
    with_type(dtype, [&]<class To>(To*) {
      const From* from = data<From>();
      std::transform(from, from + size(), t.data<To>(), [](From v) { return static_cast<To>(v); });
    });
  });
  return t;
}

Tensor Tensor::clone() const {
  Tensor t = empty(shape_, dtype_, device());
  t.copy_from(*this);
  return t;
}

void Tensor::copy_from(const Tensor& from) const {
  check(from.shape_ == shape_ && from.dtype_ == dtype_, "copy", "from {} {} to {} {}", from.shape_.text(),
        name_of(from.dtype_), shape_.text(), name_of(dtype_));
  const Device where = from.device() == Device::cuda ? Device::cuda : device();
  if (pretends(where, bytes())) return;
  on_queue(where, "copy", [&](auto& q) { memory::copy(q, raw(), from.raw(), bytes()); });
}

void Tensor::fill(double value) const {
  if (pretends(device(), bytes())) return;
  if (value == 0)
    return on_queue(device(), "fill", [&](auto& q) { memory::fill_bytes(q, raw(), 0, bytes()); });
  with_type(dtype_, [&]<class T>(T*) {
    const auto element = static_cast<T>(value);
    on_queue(device(), "fill", [&]<class Queue>(Queue& q) {
      if constexpr (std::is_same_v<Queue, CpuQueue>)
        std::fill_n(static_cast<T*>(raw()), size(), element);
      else
        memory::fill(q, raw(), &element, sizeof element, size());
    });
  });
}

}  // namespace ssn
