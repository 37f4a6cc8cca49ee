#pragma once
#include <span>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "runtime/storage.h"

namespace ssn {

/// Contiguous elements: storage + offset + shape + dtype. Copies share the storage. Images are channels last
/// (n, h, w, c).
class Tensor {
 public:
  Tensor() = default;
  static Tensor empty(const Shape& shape, DType dtype, Device device = Device::cpu);
  static Tensor zeros(const Shape& shape, DType dtype, Device device = Device::cpu);
  static Tensor full(const Shape& shape, double value, DType dtype, Device device = Device::cpu);
  /// A CPU tensor with these values, row-major.
  template <class T>
  static Tensor of(const Shape& shape, std::span<const T> values) {
    check(shape.size() == static_cast<std::int64_t>(values.size()), "tensor",
          "shape {} needs {} values, found {}", shape.text(), shape.size(), values.size());
    Tensor t = empty(shape, dtype_of<T>);
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }
  /// A tensor over bytes that someone else owns (see Storage::adopt).
  static Tensor over(Storage storage, const Shape& shape, DType dtype);

  /// False for a default-constructed tensor only.
  explicit operator bool() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return shape_.size(); }
  std::size_t bytes() const { return static_cast<std::size_t>(size()) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_.device(); }
  /// Whether no other tensor shares the storage.
  bool exclusive() const { return storage_.exclusive(); }

  void* raw() const { return static_cast<char*>(storage_.data()) + offset_; }
  template <class T>
  T* data() const {
    check(dtype_ == dtype_of<T>, "tensor", "holds {}, asked for {}", name_of(dtype_), name_of(dtype_of<T>));
    return static_cast<T*>(raw());
  }
  /// CPU tensors only.
  template <class T>
  std::span<T> span() const {
    check(device() == Device::cpu, "tensor", "is on {}, copy it with to(Device::cpu) first",
          name_of(device()));
    return {data<T>(), static_cast<std::size_t>(size())};
  }

  /// The same elements in another shape of the same size.
  Tensor view(const Shape& shape) const;
  /// `shape.size()` elements from element `first` on, sharing the storage.
  Tensor slice(std::int64_t first, const Shape& shape) const;
  /// On `device`; shares the storage if it is there already.
  Tensor to(Device device) const;
  /// Converted values (CPU); shares the storage if it has that type
  /// already.
  Tensor to(DType dtype) const;
  Tensor clone() const;
  /// Same shape and dtype, any devices.
  void copy_from(const Tensor& from) const;
  void fill(double value) const;

 private:
  Storage storage_;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::f32;
};

}  // namespace ssn
