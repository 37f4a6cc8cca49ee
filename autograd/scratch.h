#pragma once
#include "autograd/var.h"

// What the operations share in checking arguments and in choosing memory.
namespace ssn {

/// Throws Error unless `other` has x's type and device.
inline void check_alike(Where where, const Var& x, const Var& other, std::string_view name) {
  check(other.dtype() == x.dtype() && other.device() == x.device(), where,
        "{} must be {} on {} like the first argument, found {} on {}", name, name_of(x.dtype()),
        name_of(x.device()), name_of(other.dtype()), name_of(other.device()));
}
inline void check_alike(Where where, const Var& x, const Tensor& other, std::string_view name) {
  check_alike(where, x, Var::constant(other), name);
}

/// Throws Error unless a parameter has the type that goes with x (runtime/bf16.h), and x's device.
inline void check_parameter(Where where, const Var& x, const Var& parameter, std::string_view name) {
  check(parameter.dtype() == wider(x.dtype()) && parameter.device() == x.device(), where,
        "{} must be {} on {}, as goes with the first argument, which is {}, found {} on {}", name,
        name_of(wider(x.dtype())), name_of(x.device()), name_of(x.dtype()), name_of(parameter.dtype()),
        name_of(parameter.device()));
}
inline void check_parameter(Where where, const Var& x, const Tensor& parameter, std::string_view name) {
  check_parameter(where, x, Var::constant(parameter), name);
}

/// Throws Error unless a weight is f32 or of x's type, or f64 like x, and on x's device.
inline void check_weight(Where where, const Var& x, const Var& weight) {
  if (weight.dtype() != x.dtype() || weight.device() != x.device())
    check_parameter(where, x, weight, "the weight");
}

/// In a closure: memory for a gradient of the same shape as gy, which is gy's own where no one else sees it
/// (a kernel that reads each element before it writes it then moves a third less memory).
inline Tensor reused_or_new(const Tensor& gy) {
  return gy.exclusive() ? gy : Tensor::empty(gy.shape(), gy.dtype(), gy.device());
}

/// y[...,c] = x[...,c] + b[c]; y may be x.
void add_bias(const Tensor& x, const Tensor& b, const Tensor& y);
/// x in another type, f32 or bf16; x itself if it has that type.
Tensor converted(const Tensor& x, DType to);
/// Adds the sum of gy over all axes but the last to b's gradient, if b wants one.
void add_bias_gradient(const Tensor& gy, const Var& b);

}  // namespace ssn
